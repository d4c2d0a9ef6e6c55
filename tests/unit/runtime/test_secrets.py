"""Secrets are hidden in text, however they are written, and nothing else is."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.options import is_secret, without_secrets

MARKS = "".join(each for each in string.punctuation if each not in "'\"\\\\;&@/?#{}")
NAMES = [
    "password", "PASSWORD", "Pwd", "AccountKey", "SharedAccessKey", "SharedAccessSignature", "api_key", "x-api-key",
    "Authorization", "proxy-authorization", "cookie", "client_secret", "access.token", "sasl.password",
    "spark.hadoop.fs.s3a.secret.key", "fs.azure.account.key.acct.dfs.core.windows.net", "sig",
]  # fmt: skip
names = st.sampled_from(NAMES)
plain = st.text(string.ascii_letters + string.digits + MARKS, min_size=4, max_size=30).map("s3cr3t{}".format)
spaced = st.text(string.ascii_letters + " ;,&@/", min_size=4, max_size=30).map("s3cr3t{}s3cr3t".format)


encoded = st.text(min_size=4, max_size=30).map(lambda text: json.dumps(f"s3cr3t{text}")[1:-1])
forms = st.sampled_from(
    ["{}={}", "--set={}={}", "host=h {}={} user=u", "?a=1&{}={}&b=2", "a=1;{}={};b=2", "{}: {}"]
)
quoted = st.sampled_from(
    ['{}="{}"', "{}='{}'", "host=h {}='{}' user=u", "{}={{{}}};x=1", '{}: "{}"', "{} = '{}'"]
)
json_forms = st.just('{{"{}": "{}", "host": "h"}}')
urls = st.sampled_from(
    ["amqp://{}:{}@host:1/db?x=1", "log of amqp://{}:{}@host, and more", "(amqp://{}:{}@h)"]
)


@given(
    st.one_of(
        st.tuples(forms, names, plain),
        st.tuples(quoted, names, spaced),
        st.tuples(json_forms, names, encoded),
        st.tuples(urls, st.sampled_from(["", "user", "a.b"]), plain),
    )
)
def test_neither_the_beginning_nor_the_end_of_a_secret_is_left(given):
    form, name, secret = given
    text = form.format(name, secret)
    shown = without_secrets(text)

    assert is_secret(text)
    assert "s3cr3t" not in shown
    assert secret[len(secret) // 2 :] not in shown


@given(st.text())
def test_what_is_hidden_stays_hidden(text):
    once = without_secrets(text)

    assert without_secrets(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "kafka://broker:9092/topic?mail=a@b", "password=env:NAME", "token=file:/run/token", "tokens.secret:app",
        "--password-file=x", "--token-store=sqlite:///t.db", "sqlite:///store.db", "partition_key=7", "design=1", "",
        "The token is invalid: get another one.", "SharedAccessKeyName=Root", "postgresql://host/db", "12:30 to a@b",
    ],
)  # fmt: skip
def test_other_text_is_unchanged(text):
    assert without_secrets(text) == text
