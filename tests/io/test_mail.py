"""The reader of mail folders: order, words, and faults of old mail."""

import io
import os
import tarfile
import time
from email import message_from_bytes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxmargin.datasets import DataFormatError, load, read_mail_folders
from maxmargin.io.mail import HEADERS, _date_of, _words

MAIL = {
    "inbox/10": b"Date: 2 Jan 2001 10:00:00 -0600\nFrom: ann@x.org\nSubject: Re: Budget\n\nplan plan 42\n",
    "inbox/9": b"Date: Tue, 2 Jan 2001 17:00:00 +0100\nSubject: tie in time\n\n",  # the same instant
    "old/deep/1": b"Date: Fri, 1 Dec 2000 00:00:00 GMT\nSubject: first\n\nbody\n",
    "broken/1": b"no header at all, only words",
    "broken/2": b"Date: the day after\nSubject: =?no-such-charset?q?odd=20one?=\n\nundated\n",
    "broken/3": b"",
    "broken/4": (
        b"Date: Mon, 3 Jan 2000 00:00:00 -0000\nContent-Type: text/plain; charset=klingon\n\ncaf\xe9 \xff\n"
    ),
    "broken/5": (
        b"Date: Mon, 3 Jan 2000 00:00:01 -0000\nContent-Type: text/plain\n"
        b"Content-Transfer-Encoding: base64\n\n!!!not base64!!!\n"
    ),
    "html/1": (
        b"Date: Mon, 3 Jan 2000 00:00:02 -0000\nContent-Type: text/html\n\n"
        b"<style>p {color: red}</style><p class='red'>Visible</p>\n"
    ),
    "html/2": (
        b"Date: Mon, 3 Jan 2000 00:00:03 -0000\nSubject: =?utf-8?b?w5xiZXI=?=\n"
        b"Content-Type: multipart/mixed; boundary=zz\n\n--zz\nContent-Type: text/plain\n\nin part\n"
        b"--zz\nContent-Type: application/octet-stream\n\nsecret\n--zz--\n"
    ),
    "stray": b"Date: Mon, 3 Jan 2000 00:00:00 -0000\n\nin no folder\n",
}


@pytest.fixture
def mailbox(tmp_path):
    for name, content in MAIL.items():
        target = tmp_path / "box" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return tmp_path / "box"


def words(data, file):
    row = data.per_row["file"].tolist().index(file)
    entries = data.X.indices[data.X.indptr[row] : data.X.indptr[row + 1]]
    return {data.feature_names[j] for j in entries}


def test_order_folders_and_words(mailbox):
    data = read_mail_folders(mailbox)
    assert data.per_row["file"].tolist() == [
        "broken/4", "broken/5", "html/1", "html/2", "old/deep/1", "inbox/9", "inbox/10",
        "broken/1", "broken/2", "broken/3",
    ]  # fmt: skip
    assert np.isnan(data.per_row["date"]).tolist() == [False] * 7 + [True] * 3
    assert data.Y.tolist()[4] == "old/deep" and data.label_names == ("broken", "html", "inbox", "old/deep")
    assert words(data, "inbox/10") == {"ann", "org", "re", "budget", "plan", "42"}
    assert words(data, "html/1") == {"visible"}
    assert words(data, "html/2") == {"über", "in", "part"}
    assert words(data, "broken/3") == set()
    assert {"café"} <= words(data, "broken/4")
    assert "undated" in words(data, "broken/2")
    assert set(np.unique(data.X.data)) == {1.0} and data.X.has_canonical_format


def test_columns_come_in_order_of_first_occurrence(mailbox):
    data = read_mail_folders(mailbox)
    first = [data.X[:, [j]].nonzero()[0].min() for j in range(data.X.shape[1])]
    assert first == sorted(first)


def test_choice_of_headers_and_frequency(mailbox):
    assert "ann" not in words(read_mail_folders(mailbox, headers=("subject",)), "inbox/10")
    frequent = read_mail_folders(mailbox, min_messages=2)
    assert 0 < frequent.X.shape[1] < read_mail_folders(mailbox).X.shape[1]
    assert (np.bincount(frequent.X.indices) >= 2).all()


@pytest.mark.parametrize("packed", ["", ":gz", ":xz"])
def test_a_tar_file_equals_its_directory(mailbox, tmp_path, packed):
    path = tmp_path / "box.tar"
    with tarfile.open(path, f"w{packed}") as archive:
        for name, content in MAIL.items():
            if name != "stray":
                member = tarfile.TarInfo(f"box/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    from_tar, from_directory = read_mail_folders(path), read_mail_folders(mailbox)
    assert from_tar.feature_names == from_directory.feature_names
    assert from_tar.Y.tolist() == from_directory.Y.tolist()
    assert (from_tar.X != from_directory.X).nnz == 0


def test_what_is_no_mailbox(tmp_path):
    with pytest.raises(DataFormatError, match="one directory per folder"):
        read_mail_folders(tmp_path)
    (tmp_path / "x.tar").write_bytes(b"no tar file" * 100)
    with pytest.raises(DataFormatError, match="not a tar"):
        read_mail_folders(tmp_path / "x.tar")


@given(
    st.binary(max_size=80),
    st.binary(max_size=40),
    st.sampled_from(
        [b"text/plain", b"text/html; charset=utf-7", b"multipart/mixed", b"text/plain; charset=\xff"]
    ),
    st.sampled_from([b"7bit", b"base64", b"quoted-printable", b"x-uuencode", b"?"]),
)
def test_no_message_is_an_error(body, header, kind, coding):
    lines = (b"Date: " + header, b"Subject: =?" + header, b"From: " + header)
    lines += (b"Content-Type: " + kind, b"Content-Transfer-Encoding: " + coding)
    for content in (b"\n".join(lines) + b"\n\n" + body, header + body):
        message = message_from_bytes(content)
        assert isinstance(_date_of(message), float)
        assert all(len(word) > 1 for word in _words(message, HEADERS))


def test_shipped_stream(monkeypatch, tmp_path):
    monkeypatch.delenv("MAXMARGIN_DATA", raising=False)
    monkeypatch.setenv("MAXMARGIN_CACHE", str(tmp_path))
    data = load("mail-stream")
    assert data.X.shape == (2364, 7046) and data.n_labels == 11
    assert np.bincount(data.X.indices).min() >= 5 and (data.X.data == 1).all()
    assert list(dict.fromkeys(data.Y.tolist())) == sorted(set(data.Y.tolist()))


@pytest.mark.skipif(not os.environ.get("MAXMARGIN_DATA"), reason="set MAXMARGIN_DATA to the data directory")
def test_shipped_stream_equals_its_source():
    source, stream = load("enron-folders/lokay-m"), load("mail-stream")
    kept = np.bincount(source.X.indices) >= 5
    gram = (source.X[:200, kept] @ source.X[:200, kept].T).toarray()
    np.testing.assert_array_equal((stream.X[:200] @ stream.X[:200].T).toarray(), gram)


def test_hostile_mail_takes_linear_time_and_has_one_error(tmp_path):
    from maxmargin.io.mail import _natural, _without_tags

    def seconds(text):
        start = time.process_time()
        _without_tags(text)
        return time.process_time() - start

    for piece in ("<style", "<", "<b", "</style>", "<style></b>", "<script>"):
        assert seconds(piece * 100_000) < 2.0, piece
    assert _without_tags("a<style>b</b></STYLE>c<p x='1'>d<style e") == "a c d<style e"
    assert _without_tags("<p>one</p><script>two") == " one  two"
    assert _natural("²9" + "1" * 9000)[0] == (-1, "²")
    deep = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (k, k) for k in range(3000))
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "1").write_bytes(b"Subject: =?utfz\xff?b?w5xiZXI=?=\n\nbody\n")
    assert "body" in read_mail_folders(tmp_path).feature_names
    (tmp_path / "box" / "1").write_bytes(deep)
    with pytest.raises(DataFormatError, match="within one another"):
        read_mail_folders(tmp_path)
