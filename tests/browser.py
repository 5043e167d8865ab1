"""Chromium without a window, for tests that look at a page as a person would."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--force-device-scale-factor=1",
)  # fmt: skip


def find() -> str | None:
    """Where a browser is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _open(page: Path, folder: Path, *flags: str) -> str:
    browser = find()
    assert browser is not None
    profile = folder / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    command = [browser, *FLAGS, f"--user-data-dir={profile}", *flags, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def dom(page: Path, folder: Path) -> str:
    """The document after loading, and after anything in it that ran."""
    return _open(page, folder, "--virtual-time-budget=1000", "--dump-dom")


def screenshot(page: Path, folder: Path, *, dark: bool = False, size=(760, 900)) -> np.ndarray:
    """[height, width, 3] uint8, as a person sees the top of the page."""
    shot = folder / "shot.png"
    scheme = "--blink-settings=preferredColorScheme=" + ("0" if dark else "1")
    window = f"--window-size={size[0]},{size[1]}"
    _open(page, folder, scheme, window, f"--screenshot={shot}")
    return decode(shot.read_bytes())


def decode(png: bytes) -> np.ndarray:
    """A PNG of eight bits a channel (RFC 2083), its transparency dropped."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert (depth, kind) in ((8, 2), (8, 6))
    size, data, at = {2: 3, 6: 4}[kind], b"", 8
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at : at + 8])
        data += png[at + 8 : at + 8 + length] if name == b"IDAT" else b""
        at += length + 12
    rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * size)
    out = np.zeros((height + 1, width, size), np.uint8)  # a row of zeros stands above the first
    for i, row in enumerate(rows):
        out[i + 1] = _unfilter(int(row[0]), row[1:].reshape(width, size), out[i])
    return out[1:, :, :3]


def _unfilter(kind: int, row: np.ndarray, above: np.ndarray) -> np.ndarray:
    if kind == 0:
        return row
    if kind == 1:
        return np.cumsum(row, axis=0, dtype=np.uint8)
    if kind == 2:
        return row + above
    flat, up, size = row.ravel().tolist(), above.ravel().tolist(), row.shape[1]
    left = [0] * size + flat  # shifted by one pixel, so that left[i] is to the left of flat[i]
    corner = [0] * size + up
    for i, value in enumerate(flat):
        a, b, c = left[i], up[i], corner[i]
        if kind == 3:
            guess = (a + b) // 2
        else:
            pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - 2 * c)
            guess = a if pa <= pb and pa <= pc else b if pb <= pc else c
        left[i + size] = (value + guess) & 255
    return np.array(left[size:], np.uint8).reshape(row.shape)
