#!/bin/sh
# Makes *_pb2.py, *_pb2.pyi and *_grpc.py from the .proto files. Run it from the root of the
# repository with a Python ($PYTHON) that has grpcio-tools and grpclib; what it writes is checked in.
set -eu
PATH="$(dirname "$(command -v "${PYTHON:-python3}")"):$PATH"
"${PYTHON:-python3}" -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpclib_python_out=. reconciler/cri/*.proto
# The generator leaves mappings without type arguments, which strict typing refuses.
sed -i.orig 's/_Mapping\]\]/_Mapping[str, _Any]]]/g; s/_Mapping\]\( = \|)\)/_Mapping[str, _Any]]\1/g; s/, _Mapping\]\]/, _Mapping[str, _Any]]]/g; s/^from typing import /from typing import Any as _Any, /' reconciler/cri/*_pb2.pyi
rm reconciler/cri/*_pb2.pyi.orig
