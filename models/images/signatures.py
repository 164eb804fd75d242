"""What a file is, by its first bytes; names, extensions and MIME types are not to be trusted."""

from typing import Literal

ImageFormat = Literal["JPEG", "PNG", "WebP", "BMP", "GIF", "TIFF"]
ACCEPTED: tuple[ImageFormat, ...] = ("JPEG", "PNG", "WebP", "BMP", "GIF", "TIFF")

_IMAGES: tuple[tuple[bytes, ImageFormat], ...] = (
    (b"\xff\xd8\xff", "JPEG"),
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
)
_BMP_HEADER_BYTES = (12, 40, 52, 56, 64, 108, 124)

# Only for the message: what people send by mistake.
_OTHERS = (
    (b"%PDF-", "PDF"),
    (b"PK\x03\x04", "ZIP"),
    (b"\x1f\x8b", "gzip"),
    (b"II+\x00", "BigTIFF"),
    (b"MM\x00+", "BigTIFF"),
    (b"\x00\x00\x01\x00", "ICO"),
    (b"8BPS", "Photoshop document"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\x00\x00\x00\x0cJXL ", "JPEG XL"),
    (b"\x00\x00\x00\x0cjP  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"v/1\x01", "OpenEXR"),
    (b"\x93NUMPY", "numpy array"),
    (b"\x1aE\xdf\xa3", "Matroska or WebM video"),
)
# Anywhere among the brands of an ISO media file; `mif1` alone is a still picture of either codec.
_BRANDS = (
    (b"avif", "AVIF"),
    (b"avis", "AVIF"),
    (b"heic", "HEIC"),
    (b"heix", "HEIC"),
    (b"hevc", "HEIC"),
    (b"mif1", "HEIF"),
    (b"qt  ", "QuickTime video"),
)
# Lower case, after white space and a byte order mark.
_TEXTS = (
    (b"<svg", "SVG"),
    (b"<!doctype html", "HTML"),
    (b"<html", "HTML"),
    (b"<?xml", "XML"),
    (b"data:", "data URL (text)"),
    (b"{", "JSON text"),
    (b"[", "JSON text"),
    (b"/9j/", "base64 text of a JPEG"),
    (b"ivborw0kggo", "base64 text of a PNG"),
    (b"uklgr", "base64 text of a WebP"),
    (b"r0lgod", "base64 text of a GIF"),
)


def image_format(data: bytes) -> ImageFormat | None:
    """The accepted format that `data` begins with, or None."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    # Two letters are not enough: text may begin with BM.
    if data[:2] == b"BM" and int.from_bytes(data[14:18], "little") in _BMP_HEADER_BYTES:
        return "BMP"
    return next((name for magic, name in _IMAGES if data.startswith(magic)), None)


def describe(data: bytes) -> str:
    """A few words on what `data` is instead, for an error message."""
    if data[4:8] == b"ftyp":
        return next((name for brand, name in _BRANDS if brand in data[8:40]), "MP4 or similar video")
    for magic, name in _OTHERS:
        if data.startswith(magic):
            return name
    head = data[:512].removeprefix(b"\xef\xbb\xbf").lstrip()
    for start, name in _TEXTS:
        if head.lower().startswith(start):
            return "SVG" if name == "XML" and b"<svg" in head else name
    if head and all(byte >= 32 or byte in b"\t\r\n" for byte in data[:64]) and head[:64].isascii():
        return f"text beginning {head[:16].decode('ascii')!r}"
    return f"unknown bytes beginning {data[:8].hex(' ')}"
