# Training on GPUs: the set of constraints-gpu.txt on CUDA, and a user without rights. docs/how-to/install.md has the commands.
#
#   docker build -t arpo-gym .
#   docker build -t arpo-gym --build-arg BASE=IMAGE --build-arg EXTRAS=train,lora .
#
# BASE    Debian 12, Ubuntu 24.04 or newer, with Python 3.11 or newer in their packages. Of CUDA the driver comes from the
#         machine and the libraries from PyTorch's wheels; `devel` adds the compiler that some kernels of vLLM call.
# EXTRAS  of pyproject.toml
ARG BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04
FROM ${BASE}
ARG EXTRAS=demo,vllm,lora,plot

# a C compiler and Python's headers: Triton and FlexAttention compile at run time; ssh: Docker engines elsewhere
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
        bubblewrap build-essential ca-certificates git openssh-client python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/arpo && useradd --create-home --shell /bin/bash arpo
ENV PATH=/opt/arpo/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# What the package needs is a layer of its own, gigabytes that a change of its code leaves alone.
COPY pyproject.toml README.md LICENSE constraints.txt constraints-gpu.txt /opt/source/
RUN pip install -c /opt/source/constraints-gpu.txt "/opt/source[${EXTRAS}]"
COPY . /opt/source
RUN pip install --no-deps --force-reinstall /opt/source

# Runs and the caches of models and sandboxes are written to the user's home: mount folders there to keep them.
USER arpo
WORKDIR /home/arpo
ENTRYPOINT ["arpo"]
CMD ["doctor"]
