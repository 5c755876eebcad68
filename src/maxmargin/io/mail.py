"""Mail folders: one directory per folder, one message per file, as binary word-presence vectors.

A mailbox is a stream: rows are sorted by the Date headers, columns of X by the first occurrence of
their words. Old mail is often broken, so no fault of a single message is an error: unknown character
sets, wrong transfer encodings, missing or meaningless dates, and headers without a body.
"""

from __future__ import annotations

import codecs
import re
import tarfile
from collections.abc import Iterator, Sequence
from datetime import UTC
from email import message_from_bytes
from email.errors import MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import parsedate_to_datetime
from pathlib import Path, PurePosixPath

import numpy as np
import scipy.sparse as sp

from maxmargin.io.dataset import DataFormatError, Dataset, PathLike, word_array
from maxmargin.io.files import open_bytes

_WORD = re.compile(r"[^\W_]{2,}")
_OPENING = re.compile(r"<(?:style|script)", re.IGNORECASE)
_CLOSING = re.compile(r"</(?:style|script)>", re.IGNORECASE)
# Encodings that are decoded in quadratic time.
_SLOW = ("idna", "punycode")
HEADERS = ("from", "to", "cc", "subject")


def read_mail_folders(path: PathLike, headers: Sequence[str] = HEADERS, min_messages: int = 1) -> Dataset:
    """Read a mailbox: a directory, or a tar file of one (packed or not), with a directory per folder.

    Parameters
    ----------
    path : path-like
        The mailbox. Directories may be nested; messages outside of folders are left out.
    headers : sequence of str, default=("from", "to", "cc", "subject")
        Headers whose words are features, in addition to those of the text parts of the body.
    min_messages : int, default=1
        Leave out words that occur in fewer messages. A value above 1 uses later messages of the stream.

    Returns
    -------
    Dataset
        X is CSR with X[i, j] = 1 if message i contains word j. Y is the folder of each message.
        `per_row` has "date" (seconds since 1970; NaN if missing, these messages come last) and
        "file".

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from maxmargin.datasets import read_mail_folders
    >>> with tempfile.TemporaryDirectory() as place:
    ...     for name, folder, day in (("1", "work", 2), ("2", "home", 1)):
    ...         target = pathlib.Path(place, folder)
    ...         target.mkdir()
    ...         text = f"Date: {day} Jan 2001 10:00:00 +0000\\nSubject: Hello {folder}\\n\\nhello again\\n"
    ...         _ = (target / name).write_text(text)
    ...     data = read_mail_folders(place)
    >>> data.Y.tolist(), data.feature_names
    (['home', 'work'], ('again', 'hello', 'home', 'work'))
    """
    try:
        found = sorted(
            (_date_of(message), folder, _natural(name), name, _words(message, headers))
            for folder, name, message in _messages(Path(path))
        )
    except RecursionError as error:
        raise DataFormatError("a message has too many parts within one another", path) from error
    if not found:
        raise DataFormatError("no messages in folders; one directory per folder is expected", path)
    column: dict[str, int] = {}
    rows = [[column.setdefault(word, len(column)) for word in words] for *_, words in found]
    start = np.cumsum([0] + [len(row) for row in rows]).astype(np.int32)
    indices = np.array([j for row in rows for j in sorted(row)], dtype=np.int32)
    X = sp.csr_array((np.ones(len(indices)), indices, start), shape=(len(rows), len(column)))
    names = np.array(list(column), dtype=object)
    if min_messages > 1:
        kept = np.flatnonzero(np.bincount(X.indices, minlength=len(names)) >= min_messages)
        X, names = sp.csr_array(X[:, kept]), names[kept]
    folders = word_array([folder for _, folder, *_ in found])
    dates = np.array([date for date, *_ in found])
    return Dataset(
        X,
        folders,
        tuple(names.tolist()),
        tuple(np.unique(folders).tolist()),
        name=Path(path).name.partition(".")[0],
        per_row={
            "date": np.where(np.isinf(dates), np.nan, dates),
            "file": word_array([f"{folder}/{name}" for _, folder, _, name, _ in found]),
        },
    )


def _messages(path: Path) -> Iterator[tuple[str, str, Message]]:
    """Yield the folder, file name and message of every file in the mailbox."""
    files = list(_files_of_directory(path) if path.is_dir() else _files_of_tar(path))
    parts = [PurePosixPath(name).parts for name, _ in files]
    # The top directory of an archive is usually the mailbox itself, not a folder.
    skip = 1 if parts and all(len(p) > 2 for p in parts) and len({p[0] for p in parts}) == 1 else 0
    for names, (_, content) in zip(parts, files, strict=True):
        if len(names) - skip > 1:
            yield "/".join(names[skip:-1]), names[-1], message_from_bytes(content)


def _files_of_directory(path: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(path.rglob("*")):
        if file.is_file():
            yield file.relative_to(path).as_posix(), file.read_bytes()


def _files_of_tar(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        with open_bytes(path) as (plain, _), tarfile.open(fileobj=plain, mode="r|") as archive:
            for member in archive:
                # A sparse member can claim any size.
                plain_file = member.isfile() and not member.issparse()
                file = archive.extractfile(member) if plain_file else None
                if file is not None:
                    yield member.name.removeprefix("./"), file.read()
    except tarfile.TarError as error:
        raise DataFormatError(
            f"not a tar file ({error}); a directory or a tar file is expected", path
        ) from error


def _date_of(message: Message) -> float:
    """Return seconds since 1970, or infinity if the header holds no date."""
    try:
        date = parsedate_to_datetime(str(message.get("date", "")))
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return np.inf


def _natural(name: str) -> tuple[tuple[int, str], ...]:
    """Return a sorting key that puts file 9 before file 10."""
    parts = re.findall(r"\d{1,18}|\D+", name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)


def _words(message: Message, headers: Sequence[str]) -> list[str]:
    """Return the sorted lower-case words of the chosen headers and of the text parts."""
    texts = [_header_text(value) for name in headers for value in message.get_all(name, [])]
    texts += [_part_text(part) for part in message.walk() if part.get_content_maintype() == "text"]
    return sorted({word for text in texts for word in _WORD.findall(text.lower())})


def _header_text(value: object) -> str:
    try:
        return str(make_header(decode_header(str(value))))
    except (MessageError, LookupError, UnicodeError, ValueError):
        return str(value)


def _part_text(part: Message) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes):
        return ""
    try:
        charset = codecs.lookup(str(part.get_content_charset("latin-1"))).name
        text = content.decode("latin-1" if charset in _SLOW else charset, errors="replace")
    except (LookupError, ValueError):
        text = content.decode("latin-1")
    return _without_tags(text) if part.get_content_subtype() == "html" else text


def _without_tags(text: str) -> str:
    """Return the text between tags, without styles and scripts, in one pass."""
    texts, at, last = [], 0, text.rfind(">")
    ends = [(found.start(), found.end()) for found in _CLOSING.finditer(text)][::-1]
    while 0 <= (start := text.find("<", at)) < last:
        texts.append(text[at:start])
        opening = _OPENING.match(text, start)
        if opening:
            while ends and ends[-1][0] < opening.end():
                ends.pop()
        at = ends[-1][1] if opening and ends else text.index(">", start) + 1
    return " ".join([*texts, text[at:]])
