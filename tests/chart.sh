#!/usr/bin/env bash
# Renders the Helm chart for tests, which need no Helm: make chart HELM=helm
set -euo pipefail
cd "$(dirname "$0")/.."
helm=${1:-helm}
chart=conf/helm/trueup values=tests/unit/house/chart-values.yaml
digest=$(cat "$chart"/*.yaml "$chart"/templates/*.yaml "$chart"/files/*.yml "$values" | sha256sum | cut -d' ' -f1)

# FILE RELEASE OPTION...
render() {
    "$helm" lint --quiet "$chart" "${@:3}"
    local rendered
    rendered=$("$helm" template "$2" "$chart" --namespace trueup "${@:3}")
    printf '# Rendered by tests/chart.sh from the chart with this digest: %s\n%s\n' "$digest" "$rendered" >"$1"
}

render tests/unit/house/chart.yaml trueup --set serviceMonitor=true
render tests/unit/house/chart-with-values.yaml other --values "$values"
render tests/unit/house/chart-with-tls.yaml trueup --set serviceMonitor=true \
    --set config.http.tls_certificate=/etc/trueup/tls/tls.crt,config.http.tls_key=/etc/trueup/tls/tls.key \
    --set prometheus.tlsConfig.ca.secret.name=authorities,prometheus.tlsConfig.ca.secret.key=ca.crt
