"""Pictures of every page, light and dark, wide and narrow, from a seeded service.

make screenshots                       writes docs/screenshots/*.png
"""

import re
import struct
import sys
import tempfile
import zlib
from pathlib import Path

from tests.dashboard.browser import chromium, sign_in
from tests.dashboard.seed import seeded

FOLDER = Path(__file__).parent.parent / "docs" / "screenshots"
WIDTHS = (1280, 390)
THEMES = ("light", "dark")


def pages(scene):
    """Name, who looks, address, and what to wait for."""
    ds, job = scene.dataset, scene.job
    return (
        ("datasets", scene.owner, "#/datasets", "Schema"),
        ("upload", scene.owner, "#/upload", "Public facts"),
        ("dataset", scene.owner, f"#/datasets/{ds}", "For the owner"),
        ("new-job", scene.analyst, f"#/jobs/new?dataset={ds}", "Releases"),
        ("jobs", scene.analyst, "#/jobs", "Jobs, newest first"),
        ("job", scene.analyst, f"#/jobs/{job}", "Certificate"),
        ("evaluation", scene.analyst, f"#/jobs/{scene.evaluation}", "Curves"),
        ("audit", scene.auditor, f"#/audit/{ds}?record=1", "Record 1"),
        ("operations", scene.admin, "#/operations", "Processes"),
    )


def main(only=""):
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        seeded(Path(folder)) as scene,
        chromium() as browser,
    ):
        for width in WIDTHS:
            for theme in THEMES:
                shoot(browser, scene, width, theme, only)


def shoot(browser, scene, width, theme, only):
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=theme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(scene.url)
    page.get_by_label("API key").wait_for()
    save(page, f"sign-in-{theme}-{width}", only)
    signed_in = None
    for name, person, address, seen in pages(scene):
        if not re.search(only, name):
            continue
        if signed_in is not person:
            if signed_in is not None:
                page.get_by_role("button", name="Sign out").click()
                page.get_by_label("API key").wait_for()
            sign_in(page, scene.url, person.key)
            signed_in = person
        page.goto(f"{scene.url}/{address}")
        page.get_by_text(seen, exact=True).first.wait_for()
        page.wait_for_timeout(1200)  # quotes and budgets arrive
        if name == "upload":
            fill_upload(page)
        save(page, f"{name}-{theme}-{width}", only)
        if (name, theme, width) == ("dataset", "light", 1280):
            page.set_viewport_size({"width": width, "height": 1000})
            save(page, "overview", only, full_page=False)
            page.set_viewport_size({"width": width, "height": 800})
    context.close()


def fill_upload(page):
    text = b"age,ward,visits,returned\n"
    page.get_by_label("File", exact=True).set_input_files(
        {"name": "visits.csv", "mimeType": "text/csv", "buffer": text}
    )
    page.get_by_label("Kind of ward").select_option("categorical")
    page.get_by_label("categories, by comma of ward").fill("A, B, C")
    page.get_by_label("lower bound of age").fill("0")
    page.get_by_label("upper bound of age").fill("110")


def save(page, name, only, full_page=True):
    if not re.search(only, name):
        return
    path = FOLDER / f"{name}.png"
    page.screenshot(path=path, full_page=full_page)
    path.write_bytes(smaller(path.read_bytes()))
    print(f"{path.relative_to(FOLDER.parent.parent)}  {path.stat().st_size // 1024} KiB")


def smaller(png):
    """The same picture with at most 256 colours: flat pages lose nothing that is seen."""
    import numpy as np  # noqa: PLC0415

    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    if (depth, kind) not in ((8, 2), (8, 6)):
        return png
    channels = 3 if kind == 2 else 4
    data, place = b"", 8
    while place < len(png):
        (length,), name = struct.unpack(">I", png[place : place + 4]), png[place + 4 : place + 8]
        if name == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += 12 + length
    pixels = unfiltered(zlib.decompress(data), width, height, channels)[:, :, :3]
    scale = np.array([65536, 256, 1], dtype=np.uint32)
    colours, index, counts = np.unique(
        pixels.reshape(-1, 3).astype(np.uint32) @ scale, return_inverse=True, return_counts=True
    )
    for bits in (8, 7, 6, 5, 4):  # coarser until 256 colours are enough
        mask = np.uint32((256 - 2 ** (8 - bits)) * 0x10101)
        buckets, place_of = np.unique(colours & mask, return_inverse=True)
        if len(buckets) <= 256:
            break
    else:
        return png
    chosen = np.zeros(len(buckets), dtype=np.uint32)
    order = np.argsort(counts, kind="stable")
    chosen[place_of[order]] = colours[order]  # the last written, the most common, stays
    palette = (
        np.stack([chosen >> 16, chosen >> 8 & 255, chosen & 255], 1).astype(np.uint8).tobytes()
    )
    index = place_of[index.ravel()]
    lines = np.zeros((height, width + 1), dtype=np.uint8)
    lines[:, 1:] = index.reshape(height, width)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 9)
    parts = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", body), (b"IEND", b""))
    made = png[:8] + b"".join(
        struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in parts
    )
    return min(made, png, key=len)


def unfiltered(raw, width, height, channels):
    """The pixels behind PNG's five filters."""
    import numpy as np  # noqa: PLC0415

    stride = width * channels
    rows = np.frombuffer(raw, dtype=np.uint8).reshape(height, stride + 1)
    out = np.zeros((height, stride), dtype=np.uint8)
    above = np.zeros(stride, dtype=np.uint8)
    for y in range(height):
        kind, line = rows[y, 0], rows[y, 1:]
        if kind == 0:
            out[y] = line
        elif kind == 1:
            out[y] = np.add.accumulate(
                line.reshape(width, channels), axis=0, dtype=np.uint8
            ).ravel()
        elif kind == 2:
            out[y] = line + above
        else:
            out[y] = _sequential(kind, line, above, channels)
        above = out[y]
    return out.reshape(height, width, channels)


def _sequential(kind, line, above, channels):
    made, up = bytearray(line.tobytes()), above.tobytes()
    for i in range(len(made)):
        left = made[i - channels] if i >= channels else 0
        if kind == 3:
            made[i] = (made[i] + (left + up[i]) // 2) & 255
            continue
        corner = up[i - channels] if i >= channels else 0
        guess = left + up[i] - corner
        best = min((left, up[i], corner), key=lambda value, g=guess: abs(g - value))
        made[i] = (made[i] + best) & 255
    import numpy as np  # noqa: PLC0415

    return np.frombuffer(bytes(made), dtype=np.uint8)


if __name__ == "__main__":
    main(*sys.argv[1:])
