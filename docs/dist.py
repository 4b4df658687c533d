"""Build the wheel and the sdist into dist/, with the same bytes from the same commit: python docs/dist.py [FOLDER]

Setuptools makes the wheel so under SOURCE_DATE_EPOCH; of the sdist it keeps times and owners of files, which are put
right here. Without the variable, the time of the last commit counts.
"""

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build(folder: Path, source: Path = ROOT) -> list[Path]:
    """Build both into a folder and return their paths."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or _output("git", "log", "-1", "--format=%ct", cwd=source)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(command, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": epoch}, stdout=subprocess.DEVNULL)  # noqa: S603
    for archive in folder.glob("*.tar.gz"):
        archive.write_bytes(_normal(archive.read_bytes(), int(epoch)))
    return sorted(folder.iterdir())


def _output(*command: str, cwd: Path) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603


def _normal(packed: bytes, epoch: int) -> bytes:
    """Return a .tar.gz with its members in order, of nobody, with one time and the usual modes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(packed)) as old, tarfile.open(fileobj=plain, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(plain.getvalue(), mtime=epoch)


if __name__ == "__main__":
    for path in build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"):
        sys.stdout.write(f"{path}\n")
