from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest

from kilowait.errors import InputError
from kilowait.traces.anonymize.pseudonyms import (
    PseudonymKey,
    check_key_location,
    key_for,
    pseudonym_numbers,
    pseudonyms,
)

KEY = PseudonymKey(bytes(range(32)))
NAMES = [f"user{number:04}" for number in range(3000)]


def test_key_file_round_trip(tmp_path: Path) -> None:
    key = PseudonymKey.fresh()
    key.save(tmp_path / "site.key")
    assert (tmp_path / "site.key").stat().st_mode & 0o777 == 0o600
    assert PseudonymKey.read(tmp_path / "site.key") == key
    assert len(key.secret) == 32 and PseudonymKey.fresh() != key
    assert key.secret.hex() not in repr(key) and str(key.secret) not in repr(key)


def test_keys_are_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "site.key"
    KEY.save(path)
    with pytest.raises(InputError, match="already exists.*omit --new-key"):
        PseudonymKey.fresh().save(path)
    with pytest.raises(InputError, match="already exists"):
        key_for(path, tmp_path / "public" / "log.csv", new=True)
    assert PseudonymKey.read(path) == KEY


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the key has 0 bytes, but needs at least 32"),
        ("00" * 31, "the key has 31 bytes"),
        ("correct horse battery staple", "does not contain a key of 64 hexadecimal digits; create one with --new-key"),
        ("0" * 65, "does not contain a key"),
    ],
)
def test_invalid_keys_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bad.key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(InputError, match=message):
        PseudonymKey.read(path)


def test_key_file_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no key file .*; create one with --new-key"):
        PseudonymKey.read(tmp_path / "none")
    with pytest.raises(InputError, match="cannot read the key file"):
        PseudonymKey.read(tmp_path)
    with pytest.raises(InputError, match="cannot write the key file"):
        KEY.save(tmp_path / "no" / "site.key")
    path = tmp_path / "site.key"
    KEY.save(path)
    path.chmod(0o644)
    with pytest.raises(InputError, match=r"readable by all users of this system \(mode 0644\); restrict it: chmod 600"):
        PseudonymKey.read(path)
    path.chmod(0o640)  # a group of administrators may share one
    assert PseudonymKey.read(path) == KEY


def test_key_in_the_folder_of_the_published_log(tmp_path: Path) -> None:
    (tmp_path / "public" / "deep").mkdir(parents=True)
    out = tmp_path / "public" / "log.csv"
    for location in ("public/site.key", "public/deep/site.key", "public/../public/site.key"):
        with pytest.raises(InputError, match="the folder of the published log.*keep the key elsewhere"):
            check_key_location(tmp_path / location, out)
    KEY.save(tmp_path / "site.key")
    check_key_location(tmp_path / "site.key", out)
    (tmp_path / "public" / "link.key").symlink_to(tmp_path / "site.key")
    with pytest.raises(InputError, match="keep the key elsewhere"):
        check_key_location(tmp_path / "public" / "link.key", out)
    (tmp_path / "elsewhere").symlink_to(tmp_path / "public")
    with pytest.raises(InputError, match="keep the key elsewhere"):
        check_key_location(tmp_path / "elsewhere" / "site.key", out)


def test_key_for_a_publication(tmp_path: Path) -> None:
    out = tmp_path / "public" / "log.csv"
    with pytest.raises(InputError, match="pseudonyms need a key; name its file with --key-file"):
        key_for(None, out)
    with pytest.raises(InputError, match="pseudonyms need a key"):
        key_for(None, None, new=True)
    with pytest.raises(InputError, match="name it with --out"):
        key_for(tmp_path / "site.key", None, new=True)
    key = key_for(tmp_path / "site.key", out, new=True)
    assert not (tmp_path / "site.key").exists()  # nothing is left behind where something else fails
    key.save(tmp_path / "site.key")
    assert key_for(tmp_path / "site.key", out) == key
    assert key_for(None, None) != key


def test_pseudonyms_are_hmac_of_column_and_name() -> None:
    expected = hmac.new(bytes(range(32)), b"kilowait/1\0user\0ann", hashlib.sha256).hexdigest()
    assert pseudonyms(KEY, "user", ["ann"]) == [f"user_{expected[:12]}"]


def test_pseudonyms_depend_on_the_key() -> None:
    pseudonyms_first = pseudonyms(KEY, "user", NAMES)
    assert pseudonyms(PseudonymKey(bytes(range(32))), "user", NAMES[::-1])[::-1] == pseudonyms_first
    other = PseudonymKey(bytes(range(1, 33)))
    assert not set(pseudonyms_first) & set(pseudonyms(other, "user", NAMES))
    assert set(pseudonym_numbers(KEY, "user", NAMES)) != set(pseudonym_numbers(other, "user", NAMES))
    digits = {name.rpartition("_")[2] for name in pseudonyms_first}
    assert not digits & {name.rpartition("_")[2] for name in pseudonyms(KEY, "account", NAMES)}


def test_dictionary_attack_without_the_key_fails() -> None:
    """Hashing all user names without the key reproduces no pseudonym."""
    published = {name.rpartition("_")[2] for name in pseudonyms(KEY, "user", NAMES)}
    guesses = (b"", b"user\0", b"kilowait/1\0user\0")
    for name in NAMES:
        for prefix in guesses:
            message = prefix + name.encode()
            for digest in (
                hashlib.sha256(message).hexdigest(),
                hashlib.md5(message).hexdigest(),
                hmac.new(b"", message, hashlib.sha256).hexdigest(),
                hmac.new(b"kilowait", message, hashlib.sha256).hexdigest(),
            ):
                assert digest[:12] not in published


def test_collisions_are_errors() -> None:
    with pytest.raises(InputError, match=r"user 'user\d+' and 'user\d+' both become user_\w: 1 hexadecimal digits"):
        pseudonyms(KEY, "user", NAMES[:20], digits=1)
    with pytest.raises(InputError, match="both become .*numbers up to 10 are too few here; write Parquet or CSV"):
        pseudonym_numbers(KEY, "user", NAMES[:20], most=10)
    assert len(set(pseudonym_numbers(KEY, "user", NAMES))) == len(NAMES)
    assert all(1 <= number < 2**31 - 1 for number in pseudonym_numbers(KEY, "user", NAMES))


def test_shift_is_derived_from_the_key() -> None:
    shifts = {PseudonymKey(bytes([number]) * 32).shift_s() for number in range(50)}
    assert len(shifts) > 40
    assert all(shift % (7 * 86400) == 0 and 0 < shift <= 520 * 7 * 86400 for shift in shifts)
    assert KEY.shift_s() == PseudonymKey(bytes(range(32))).shift_s()
