# Trueup with everything it needs: the locked Python packages (a Java among them) and the locked jars.
FROM python:3.11-slim

RUN useradd --create-home trueup && install -d -o trueup -g trueup /var/lib/trueup
WORKDIR /opt/trueup

COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes --requirement requirements.lock

COPY pyproject.toml README.md LICENSE ./
COPY state ./state
COPY connectors ./connectors
COPY streams ./streams
COPY trueup ./trueup
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

USER trueup
RUN python -c "from trueup.connectors.sandbox.jvm.jars import jars; jars('spark-4.3'); jars('kafka-4.3.1')"

ENV TRUEUP__DATA_DIR=/var/lib/trueup
VOLUME /var/lib/trueup
EXPOSE 8480
ENTRYPOINT ["trueup"]
CMD ["run"]
