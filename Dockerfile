# The command line in a container, with the loops of default fits compiled while it is built:
#   docker build -t maxmargin .
#   docker run --rm -v "$PWD":/data maxmargin fit shop.csv --labels tags -o shop.mm
FROM python:3.12-slim

COPY . /src
RUN pip install --no-cache-dir "/src[plots,parquet,data,onnx]" \
    && install -m 755 /src/tools/container.sh /usr/local/bin/container \
    && rm -rf /src

RUN useradd --create-home person
USER person
ENV MAXMARGIN_CACHE=/data/.maxmargin
RUN container warmup
WORKDIR /data
ENTRYPOINT ["container"]
CMD ["--help"]
