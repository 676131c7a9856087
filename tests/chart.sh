#!/usr/bin/env bash
# Renders the Helm chart for tests, which need no Helm: make chart HELM=helm
set -euo pipefail
cd "$(dirname "$0")/.."
helm=${1:-helm}
"$helm" lint --quiet conf/helm/trueup
digest=$(cat conf/helm/trueup/*.yaml conf/helm/trueup/templates/*.yaml | sha256sum | cut -d' ' -f1)
rendered=$("$helm" template trueup conf/helm/trueup --namespace trueup --set serviceMonitor=true)
printf '# Rendered by tests/chart.sh from the chart with this digest: %s\n%s\n' "$digest" "$rendered" >tests/unit/house/chart.yaml
