FROM python:3.11-slim AS build
COPY . /knn-seq
RUN python -m venv /opt/knn-seq \
    && /opt/knn-seq/bin/pip install --no-cache-dir --constraint /knn-seq/constraints.txt "/knn-seq[serve,documents]"

FROM python:3.11-slim
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent knn-seq
COPY --from=build /opt/knn-seq /opt/knn-seq
ENV PATH=/opt/knn-seq/bin:$PATH PYTHONDONTWRITEBYTECODE=1 HF_HOME=/tmp/huggingface OMP_WAIT_POLICY=passive
USER 10001
VOLUME /stores
EXPOSE 5000
STOPSIGNAL SIGTERM
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:5000/health')"]
ENTRYPOINT ["knn-seq", "serve", "--host", "0.0.0.0"]
CMD ["/stores/store", "--api-keys", "/keys.json"]
