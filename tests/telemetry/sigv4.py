"""AWS signature version 4 as its specification spells it out, step by step: the slow twin of what signs our requests.

Source: "Authenticating requests (AWS Signature Version 4)", and the vectors of the published Signature V4 test suite.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlsplit


def signature(
    method: str, url: str, headers: Mapping[str, str], body: bytes, secret: str, scope: str, signed: str
) -> str:
    """The signature; scope: 20150830/us-east-1/service/aws4_request; signed: names of headers, joined by semicolons."""
    parts = urlsplit(url)
    pairs = sorted((quote(k, safe="-_.~"), quote(v, safe="-_.~")) for k, v in parse_qsl(parts.query, True))
    lower = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    canonical = "\n".join(
        [
            method,
            quote(parts.path or "/", safe="/-_.~"),
            "&".join(f"{k}={v}" for k, v in pairs),
            *(f"{name}:{lower[name]}" for name in signed.split(";")),
            "",
            signed,
            hashlib.sha256(body).hexdigest(),
        ]
    )
    told = ["AWS4-HMAC-SHA256", lower["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()]
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, "\n".join(told).encode(), hashlib.sha256).hexdigest()


def parts_of(authorization: str) -> dict[str, str]:
    """Credential, SignedHeaders and Signature of an Authorization header."""
    return dict(re.findall(r"(\w+)=([^,\s]+)", authorization))
