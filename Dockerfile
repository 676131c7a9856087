# Trueup with everything it needs: the locked Python packages (a Java among them) and the locked jars.
# The base is an exact version. To also fix its content, add the digest that `docker buildx imagetools inspect` shows.
FROM python:3.11.14-slim-bookworm AS build

WORKDIR /build
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY state ./state
COPY connectors ./connectors
COPY streams ./streams
COPY sandbox ./sandbox
COPY trueup ./trueup
COPY conf ./conf
COPY docs ./docs
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels .

FROM python:3.11.14-slim-bookworm

RUN useradd --create-home trueup && install -d -o trueup -g trueup /var/lib/trueup
WORKDIR /opt/trueup

COPY requirements.image.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements.image.lock
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-deps /wheels/*.whl

USER trueup
RUN python -c "from trueup.connectors.embedded.jars import jars; jars('spark-4.3'); jars('kafka-4.3.1')"

ENV TRUEUP__DATA_DIR=/var/lib/trueup
VOLUME /var/lib/trueup
EXPOSE 8480
ENTRYPOINT ["trueup"]
CMD ["run"]
