"""Configuration: one frozen model per section, checked at start.

Every key has a default here and a line in `config.toml`. An unknown key, a bad value or two values that
contradict each other is a `ConfigError` whose message is one line that names the key.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

LANE_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")

Seconds = Annotated[float, Field(ge=0, le=86_400)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Share = Annotated[float, Field(gt=0, le=1)]


def _http_url(value: str) -> str:
    if value and not re.match(r"https?://[^/\s]+", value):
        raise ValueError("must start with http:// or https:// and name a host")
    return value.rstrip("/")


Url = Annotated[str, AfterValidator(_http_url)]


def _one_word(secret: SecretStr) -> SecretStr:
    text = secret.get_secret_value().strip()
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise ValueError("must not hold a line break or another control character")
    return SecretStr(text)


Secret = Annotated[SecretStr, AfterValidator(_one_word)]


def _giving_way(default: int, bound: str) -> Any:
    """A default that is never above the value of another key: `batch = 1` alone is no contradiction."""
    return Field(default_factory=lambda values: min(default, values[bound]))


def _low_for(high_water: int) -> int:
    """100, or the same share of a queue that has no room for so many."""
    return 100 if high_water > 100 else max(1, high_water // 8)


def _recovery_for(degrade_at: float) -> float:
    return 0.35 if degrade_at > 0.35 else degrade_at / 2


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch(cls, value: Any) -> Any:
        """No key is a switch, and `port = true` would be port 1."""
        if isinstance(value, bool):
            raise ValueError("must not be true or false")
        return value


class DaemonConfig(Section):
    drain_timeout: Seconds = 25
    lang: Literal["zh", "en"] = "zh"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"
    data_dir: str = "data"
    http_client: Literal["native", "aiohttp"] = "native"


class WebConfig(Section):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8090
    token: Secret = SecretStr("")
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @model_validator(mode="after")
    def _closed_or_local(self) -> WebConfig:
        if not self.is_loopback and not self.token.get_secret_value():
            raise ValueError(f"token: must be set when web.host ({self.host}) is not a loopback address")
        return self


class WecomConfig(Section):
    key: Secret = SecretStr("")
    url: Url = "https://qyapi.weixin.qq.com/cgi-bin/webhook/send"
    mention: tuple[str, ...] = ()
    per_minute: Annotated[int, Field(ge=1, le=20)] = 20


class AlertsConfig(Section):
    wecom: WecomConfig = WecomConfig()


class JournalConfig(Section):
    level: Literal["tickets", "answers", "off"] = "tickets"
    keep_days: Annotated[float, Field(gt=0, le=3650)] = 3


class FieldNames(Section):
    """Where upstream's ticket keeps what we need."""

    shop_id: str = "shop_id"
    item_id: str = "good_id"
    country: str = "country"
    trace_id: str = "trace_id"
    created_at: str = "created_at"
    token: str = "token"
    priority: str = "priority"


class PullConfig(Section):
    url: Url = ""
    path: str = "/api/get/tasks"
    volume_path: str = "/api/curnum"
    phone: Secret = SecretStr("")
    limit: Annotated[int, Field(ge=1, le=10_000)] = 200
    workers: Count = 250
    batch: Count = 5
    degraded_batch: Count = _giving_way(1, "batch")
    severe_batch: Count = _giving_way(1, "degraded_batch")
    interval: Annotated[float, Field(gt=0, le=3600)] = 2
    max_age: Seconds = 180
    timeout: Seconds = 0
    max_body: Annotated[int, Field(ge=1, le=1 << 30)] = 16_777_216
    timezone: str = "Asia/Shanghai"
    fields: FieldNames = FieldNames()

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"{value!r} is not a time zone") from error
        return value


class QueueConfig(Section):
    high_water: Count = 800
    low_water: Count = Field(default_factory=lambda values: _low_for(values["high_water"]))
    max_age: Seconds = 280
    bucket_keys: Annotated[int, Field(ge=0, le=50_000_000)] = 200_000
    dedupe: Literal["join", "drop"] = "join"
    order: Literal["fifo", "lifo", "deadline", "priority"] = "fifo"
    joined_max: Count = 1000
    clean_every: Annotated[float, Field(gt=0, le=3600)] = 30

    @model_validator(mode="after")
    def _low_not_above_high(self) -> QueueConfig:
        if self.low_water > self.high_water:
            raise ValueError(f"low_water: {self.low_water} is above high_water ({self.high_water})")
        return self


class QueryConfig(Section):
    url: Url = ""
    path: str = "/request/shopee/pdp"
    credits_path: str = "/tokens/credits"
    token: Secret = SecretStr("")
    language: str = "zh-Hant"
    workers: Count = 50
    batch: Count = 10
    degraded_batch: Count = _giving_way(5, "batch")
    severe_batch: Count = _giving_way(1, "degraded_batch")
    stale_age: Seconds = 240
    max_age: Seconds = 290
    timeout: Seconds = 0
    probe_interval: Annotated[float, Field(gt=0, le=3600)] = 30
    processing_codes: tuple[int, ...] = (1100002,)
    fault_codes: tuple[int, ...] = (1000000,)
    credit_codes: tuple[int, ...] = (1070102,)
    max_body: Annotated[int, Field(ge=1, le=1 << 30)] = 16_777_216
    body: dict[str, Any] = {
        "country": "$country",
        "shop_id": "$shop_id",
        "item_id": "$item_id",
        "language": "$language",
    }
    price: Annotated[float, Field(ge=0)] = 1


class CallbackConfig(Section):
    url: Url = ""
    path: str = "/api/task/submit/v2"
    workers: Count = 20
    batch: Count = 15
    degraded_batch: Count = _giving_way(8, "batch")
    severe_batch: Count = _giving_way(1, "degraded_batch")
    retries: Annotated[int, Field(ge=0, le=1000)] = 5
    retry_interval: Annotated[float, Field(gt=0, le=3600)] = 5
    max_age: Seconds = 290
    timeout: Seconds = 0
    success_codes: tuple[int, ...] = (0, 200)
    backlog_bytes: Annotated[int, Field(ge=1)] = 67_108_864
    backlog_count: Count = 2000
    success_limit: Annotated[int, Field(ge=0)] = 0
    page_url: str = (
        "https://shopee.{country}/api/v4/pdp/get_pc?display_model_id=0&item_id={item_id}"
        "&model_selection_logic=3&shop_id={shop_id}&tz_offset_in_minutes=480&detail_level=0"
    )
    body: dict[str, Any] = {"appVersion": "vv2", "url": "$page_url", "result": "$result"}

    @field_validator("body")
    @classmethod
    def _carries_the_result(cls, value: dict[str, Any]) -> dict[str, Any]:
        if list(value.values()).count("$result") != 1:
            raise ValueError('must hold "$result" exactly once')
        return value


class BreakerConfig(Section):
    window: Annotated[int, Field(ge=1, le=3600)] = 60
    min_samples: Count = 100
    degrade_at: Share = 0.70
    recover_below: Share = Field(default_factory=lambda values: _recovery_for(values["degrade_at"]))
    trip_after: Count = 200
    pause: Annotated[float, Field(gt=0, le=3600)] = 10
    pause_max: Annotated[float, Field(gt=0, le=3600)] = 60
    trials: Count = 10
    slow_after: Annotated[float, Field(gt=0, le=3600)] = 30

    @model_validator(mode="after")
    def _recovers_below_where_it_degrades(self) -> BreakerConfig:
        if self.recover_below >= self.degrade_at:
            raise ValueError("recover_below: must be below degrade_at")
        if self.pause > self.pause_max:
            raise ValueError(f"pause: {self.pause:g} is above pause_max ({self.pause_max:g})")
        return self


class DropRateConfig(Section):
    window: Annotated[int, Field(ge=0, le=86_400)] = 600
    min_total: Count = 100
    degrade: Share = 0.10
    trip: Share = 0.15
    stop: Share = 0.20

    @model_validator(mode="after")
    def _in_order(self) -> DropRateConfig:
        if not self.degrade <= self.trip <= self.stop:
            raise ValueError("must be in order: degrade ≤ trip ≤ stop")
        return self


class RetryConfig(Section):
    """Fault retries of one stage: at most `share` of its recent calls plus `per_second`."""

    share: Share = 0.20
    per_second: Annotated[float, Field(gt=0, le=10_000)] = 3
    delay: Annotated[float, Field(gt=0, le=3600)] = 1
    delay_max: Annotated[float, Field(gt=0, le=3600)] = 30


class SimConfig(Section):
    """The world behind source, provider and sink = "sim"."""

    rate: Annotated[float, Field(ge=0, le=100_000)] = 20
    scenario: str = "calm"
    seed: int = 1


class LaneConfig(Section):
    source: str = "http"
    provider: str = "http"
    sink: str = "http"
    pull: PullConfig = PullConfig()
    queue: QueueConfig = QueueConfig()
    query: QueryConfig = QueryConfig()
    callback: CallbackConfig = CallbackConfig()
    breaker: BreakerConfig = BreakerConfig()
    drop_rate: DropRateConfig = DropRateConfig()
    retry: RetryConfig = RetryConfig()
    sim: SimConfig = SimConfig()

    @field_validator("source", "provider", "sink")
    @classmethod
    def _known_end(cls, value: str) -> str:
        if value not in {"http", "sim"} and not re.fullmatch(r"[\w.]+:\w+", value):
            raise ValueError('must be "http", "sim" or "module:Class"')
        return value

    def empty_secrets(self) -> list[str]:
        """Keys that ends over HTTP mostly want, and without which every call would be a fault."""
        wanted = (
            (self.source, "pull.phone", self.pull.phone),
            (self.provider, "query.token", self.query.token),
        )
        return [key for end, key, secret in wanted if end == "http" and not secret.get_secret_value()]

    @model_validator(mode="after")
    def _consistent(self) -> LaneConfig:
        for section, end in (("pull", self.source), ("query", self.provider), ("callback", self.sink)):
            if end == "http" and not getattr(self, section).url:
                raise ValueError(f"{section}.url: must be set")
        for section in ("pull", "query", "callback"):
            stage = getattr(self, section)
            if not stage.severe_batch <= stage.degraded_batch <= stage.batch:
                raise ValueError(f"{section}: severe_batch ≤ degraded_batch ≤ batch must hold")
        return self


class Settings(BaseSettings):
    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    daemon: DaemonConfig = DaemonConfig()
    web: WebConfig = WebConfig()
    alerts: AlertsConfig = AlertsConfig()
    journal: JournalConfig = JournalConfig()
    lanes: dict[str, LaneConfig] = {}

    @field_validator("lanes")
    @classmethod
    def _at_least_one(cls, value: dict[str, LaneConfig]) -> dict[str, LaneConfig]:
        for name in value:
            if not LANE_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a lane name: a-z, 0-9, - and _, a letter first")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The file, the credentials and the environment are merged in `load`, so that a value from the
        # environment is text and nothing guesses at it: "12e4" is a token, not a number.
        return (init_settings,)
