# One image per process:
#
#   docker build --target operator -t heliotrope-operator:0.1.0 .
#   docker build --target picker   -t heliotrope-picker:0.1.0 .
#   docker build --target agent    -t heliotrope-agent:0.1.0 .
#   docker build                   -t heliotrope:0.1.0 .          # the whole command
#
# For images that come out the same bit by bit, pin the base image by its digest and normalise times:
#
#   docker buildx build --target picker --build-arg PYTHON_DIGEST=sha256:… \
#     --build-arg SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) --build-arg REVISION=$(git rev-parse HEAD) \
#     --output type=image,name=heliotrope-picker:0.1.0,rewrite-timestamp=true .

ARG PYTHON_VERSION=3.12.12
ARG PYTHON_DIGEST=""
FROM python:${PYTHON_VERSION}-slim-bookworm${PYTHON_DIGEST:+@${PYTHON_DIGEST}} AS base


FROM base AS build
ARG UV_VERSION=0.13.9
RUN pip install --no-cache-dir --no-compile --disable-pip-version-check --root-user-action=ignore uv==${UV_VERSION}
ENV UV_PYTHON=/usr/local/bin/python3 \
    UV_PROJECT_ENVIRONMENT=/opt/heliotrope \
    UV_NO_CACHE=1 \
    UV_LINK_MODE=copy \
    PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
COPY pyproject.toml uv.lock ./

FROM build AS wheel
ARG HATCHLING_VERSION=1.33.0
# 2020-01-01; zip archives hold no time before 1980.
ARG SOURCE_DATE_EPOCH=1577836800
COPY README.md LICENSE NOTICE ./
COPY core core
COPY operator operator
COPY epp_plugins epp_plugins
COPY node_agent node_agent
COPY simulator simulator
COPY cli cli
COPY data/argonne-llm-inference-bench data/argonne-llm-inference-bench
COPY data/aws-interregion-rtt data/aws-interregion-rtt
COPY data/azure-llm-2023 data/azure-llm-2023
COPY data/carbon data/carbon
COPY data/casper data/casper
COPY data/electricitymaps-umass data/electricitymaps-umass
COPY data/ml-energy-leaderboard-v2 data/ml-energy-leaderboard-v2
COPY data/mooncake-fast25 data/mooncake-fast25
COPY data/splitwise-sim data/splitwise-sim
COPY data/vidur data/vidur
RUN echo hatchling==${HATCHLING_VERSION} > /tmp/constraints.txt \
    && uv build --quiet --wheel --build-constraints /tmp/constraints.txt --out-dir /dist

# Each environment holds the locked packages of its extra and the wheel. Dependencies come as wheels only, so nothing but
# our own code is built. pip, unlike uv, records no times; compiling in one process gives the same bytecode each time.
FROM build AS operator-environment
RUN uv sync --quiet --locked --no-dev --extra operator --no-install-project --no-build
COPY --from=wheel /dist /dist
RUN pip --python ${UV_PROJECT_ENVIRONMENT}/bin/python install --quiet --no-cache-dir --no-compile --no-deps --no-index \
      --disable-pip-version-check --root-user-action=ignore --find-links /dist heliotrope \
    && PYTHONHASHSEED=0 ${UV_PROJECT_ENVIRONMENT}/bin/python -m compileall -q --invalidation-mode unchecked-hash \
      ${UV_PROJECT_ENVIRONMENT}/lib

FROM build AS picker-environment
RUN uv sync --quiet --locked --no-dev --extra epp --no-install-project --no-build
COPY --from=wheel /dist /dist
RUN pip --python ${UV_PROJECT_ENVIRONMENT}/bin/python install --quiet --no-cache-dir --no-compile --no-deps --no-index \
      --disable-pip-version-check --root-user-action=ignore --find-links /dist heliotrope \
    && PYTHONHASHSEED=0 ${UV_PROJECT_ENVIRONMENT}/bin/python -m compileall -q --invalidation-mode unchecked-hash \
      ${UV_PROJECT_ENVIRONMENT}/lib

FROM build AS agent-environment
RUN uv sync --quiet --locked --no-dev --extra agent --no-install-project --no-build
COPY --from=wheel /dist /dist
RUN pip --python ${UV_PROJECT_ENVIRONMENT}/bin/python install --quiet --no-cache-dir --no-compile --no-deps --no-index \
      --disable-pip-version-check --root-user-action=ignore --find-links /dist heliotrope \
    && PYTHONHASHSEED=0 ${UV_PROJECT_ENVIRONMENT}/bin/python -m compileall -q --invalidation-mode unchecked-hash \
      ${UV_PROJECT_ENVIRONMENT}/lib

FROM build AS all-environment
RUN uv sync --quiet --locked --no-dev --extra all --no-install-project --no-build
COPY --from=wheel /dist /dist
RUN pip --python ${UV_PROJECT_ENVIRONMENT}/bin/python install --quiet --no-cache-dir --no-compile --no-deps --no-index \
      --disable-pip-version-check --root-user-action=ignore --find-links /dist heliotrope \
    && PYTHONHASHSEED=0 ${UV_PROJECT_ENVIRONMENT}/bin/python -m compileall -q --invalidation-mode unchecked-hash \
      ${UV_PROJECT_ENVIRONMENT}/lib


# LightGBM's wheel expects GNU OpenMP of the system, which slim images lack. One file of a Debian package is copied, so
# that no package lists, caches or logs with their times come along; /usr/lib is on the loader's path as it is.
FROM base AS openmp
RUN apt-get update -qq \
    && apt-get install --quiet --yes --no-install-recommends libgomp1 \
    && mkdir -p /openmp/lib /openmp/share/doc/libgomp1 \
    && cp --dereference /usr/lib/*-linux-gnu/libgomp.so.1 /openmp/lib/ \
    && cp --dereference /usr/share/doc/libgomp1/copyright /openmp/share/doc/libgomp1/


FROM base AS runtime
ARG VERSION=0.1.0
ARG REVISION=""
LABEL org.opencontainers.image.title="Heliotrope" \
      org.opencontainers.image.description="Serves LLM requests with the least energy and carbon that their promises allow." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.vendor="The Heliotrope authors" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
ENV PATH=/opt/heliotrope/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/ \
    USER=heliotrope
# A number, so that Kubernetes can tell that it is not root. The platform may choose another one that no passwd file
# knows; Python and Kopf then take the user's name from the environment.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["heliotrope"]
CMD ["--help"]

FROM runtime AS operator
COPY --from=operator-environment /opt/heliotrope /opt/heliotrope

FROM runtime AS picker
COPY --from=openmp /openmp /usr
COPY --from=picker-environment /opt/heliotrope /opt/heliotrope
RUN ["python", "-c", "import lightgbm"]

# Root, alone of them all: the driver lets nobody else set clocks, and the kubelet's socket and the state folder are root's.
# The driver's library is not in here; the container runtime brings that of the node.
FROM runtime AS agent
USER 0:0
ENV USER=root \
    HOME=/root
COPY --from=agent-environment /opt/heliotrope /opt/heliotrope
RUN ["python", "-c", "import pynvml, grpc, heliotrope_agent.app"]
# A SIGTERM while Python starts would end it before it has put back what it finds: blocked ones wait until it listens. In
# the node's process namespace it is not process 1, which the kernel would spare.
ENTRYPOINT ["env", "--block-signal=TERM,INT", "heliotrope"]

FROM runtime AS all
COPY --from=openmp /openmp /usr
COPY --from=all-environment /opt/heliotrope /opt/heliotrope
RUN ["python", "-c", "import lightgbm"]
