"""What the webhook says of wrong options, and where its secret comes from."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from gateway.protocol.errors import PluginError
from plugins.webhook import Webhook

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
GOOD: dict[str, Any] = {"url": "https://example.com/hook", "secret": SECRET}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": None}, r"Expected `str`, got `null` - at `url`"),
        ({"url": "example.com/hook"}, "url must be an absolute http or https URL"),
        ({"url": "ftp://example.com"}, "url must be an absolute http or https URL"),
        ({"url": "https://example.com:99999"}, "url must be an absolute http or https URL"),
        ({"url": "https://me:pw@example.com"}, "url must not hold credentials"),
        ({"url": "http://example.com"}, "url must be https; allow_http: true permits http"),
        ({"urls": "x"}, "unknown field `urls`"),
        ({"secret": None}, "give exactly one of secret, secret_env and secret_file"),
        ({"secret_env": "HOOK"}, "give exactly one of secret, secret_env and secret_file"),
        ({"secret": None, "secret_env": "NO_SUCH_VARIABLE"}, "the environment has no NO_SUCH_VARIABLE"),
        (
            {"secret": None, "secret_file": "/no/such/file"},
            "secret_file: cannot be read: FileNotFoundError",
        ),
        ({"secret": ""}, "the secret must be whsec_ followed by the base64 of 24 to 64 bytes"),
        ({"secret": "hunter2"}, "the secret must be whsec_"),
        ({"secret": "whsec_c2hvcnQ="}, "the secret must be whsec_"),
        ({"secret": SECRET + "!"}, "the secret must be whsec_"),
        ({"timeout": "soon"}, "timeout must be a duration such as 10s or 5m"),
        ({"timeout": 0}, "timeout must be a duration"),
        ({"backoff": {"max": "-1s"}}, "backoff.max must be a duration"),
        ({"attempts": 0}, r"Expected `int` >= 1 - at `attempts`"),
        ({"queue": "many"}, r"Expected `int`, got `str` - at `queue`"),
        ({"statuses": ["working"]}, "Invalid enum value 'working'"),
        ({"headers": {"X-A": "1\r\nX-B: 2"}}, "headers: 'X-A' is not a name and a value that HTTP allows"),
        ({"headers": {"Webhook-Id": "1"}}, "headers: Webhook-Id is the plugin's own"),
    ],
)
def test_I12_a_wrong_option_is_named_and_no_secret_is_told(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PluginError, match=words) as caught:
        Webhook(GOOD | changes).validate()
    assert "hunter2" not in str(caught.value)
    assert SECRET not in str(caught.value)


def test_the_secret_comes_from_the_environment_or_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    Webhook({"url": "https://example.com", "secret_env": "HOOK_SECRET"}).validate()
    (tmp_path / "secret").write_text(SECRET + "\n")
    webhook = Webhook({"url": "https://example.com/?token=hush", "secret_file": str(tmp_path / "secret")})
    webhook.validate()
    assert repr(webhook) == "<Webhook to https://example.com: 0 waiting>"
