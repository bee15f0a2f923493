"""Images of digits that are learned in seconds, in the files of MNIST."""

import gzip
import struct


def digit(label, index, size):
    """An image of `size` by `size` grey pixels that tells its label: a bar, at a height of its own."""
    pixels = bytearray((index * 37 + i * 11) % 40 for i in range(size * size))
    for row in range(2 * label + 2, 2 * label + 5):
        for column in range(4, size - 4):
            pixels[row * size + column] = 200 + index % 50
    return bytes(pixels)


def write_digits(folder, name, images, zipped=False):
    """The IDX files of images and labels of "train" or "t10k"."""
    labels = [i % 10 for i in range(images)]
    pictures = b"".join(digit(label, i, 28) for i, label in enumerate(labels))
    files = {
        f"{name}-images-idx3-ubyte": struct.pack(">IIII", 0x803, images, 28, 28) + pictures,
        f"{name}-labels-idx1-ubyte": struct.pack(">II", 0x801, images) + bytes(labels),
    }
    for path, content in files.items():
        if zipped:
            (folder / (path + ".gz")).write_bytes(gzip.compress(content))
        else:
            (folder / path).write_bytes(content)
