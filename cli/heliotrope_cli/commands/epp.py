"""`heliotrope epp`: the endpoint picker behind an Envoy ext_proc filter."""

import dataclasses
import json
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from heliotrope.errors import InvalidInputError
from heliotrope_cli.commands.epp_region import read_regions, refuse_endpoint_flags, run_region
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.logs import configure

Flag = Annotated[bool, Parameter(negative="")]


def epp(
    *,
    tier: Literal["endpoint", "region"] = "endpoint",
    regions: Path | None = None,
    folder: Path | None = None,
    secrets_folder: Path | None = None,
    pool_name: str | None = None,
    pool_namespace: str = "default",
    kubeconfig: Path | None = None,
    config_file: Path | None = None,
    config_text: str | None = None,
    host: str = "0.0.0.0",
    grpc_port: int = 9002,
    health_port: int = 9003,
    metrics_port: int = 9090,
    secure_serving: bool = True,
    cert_path: Path | None = None,
    refresh_metrics_interval: float = 0.2,
    metrics_staleness_threshold: float = 2.0,
    home_region: str | None = None,
    max_inflight: int = 8_000,
    hold_requests: int = 1_000,
    hold_bytes: int = 64 * 1024 * 1024,
    hold_ttl: float = 180.0,
    max_sessions: int = 1_000_000,
    session_gate: Path | None = None,
    quality_model: Path | None = None,
    quality_url: str | None = None,
    quality_timeout: float = 0.2,
    router_core_watts: float = 10.0,
    learn: bool = True,
    state_dir: Path | None = None,
    trainer_url: str | None = None,
    tracing: bool | None = None,
    otlp_endpoint: str | None = None,
    otlp_protocol: Literal["grpc", "http/protobuf", "console"] | None = None,
    trace_ratio: float | None = None,
    meter: bool = True,
    energy_port: int | None = None,
    energy_path: str = "/metrics",
    max_accelerator_watts: float = 2_000.0,
    ledger: bool = True,
    ledger_dir: Path | None = None,
    ledger_slot_seconds: int = 300,
    ledger_max_bytes: int = 1024 * 1024 * 1024,
    ledger_max_days: float = 400.0,
    drain_seconds: float = 5.0,
    grace_seconds: float = 25.0,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["text", "json"] = "text",
    announce: Flag = False,
) -> None:
    """Choose an endpoint for every request that an Envoy gateway asks about.

    Resources and endpoints come from a watched folder of YAML files (--folder) or from the Kubernetes API
    (--pool-name). With an enforced CarbonPolicy decisions follow it; without one the configured picker decides.

    With --tier region it stands in front of several clusters' gateways and chooses the region of every request
    (docs/region-tier.md). Flags about endpoints, engines, learning, metering and the ledger have no use there.

    Args:
        tier: What is chosen: the endpoint of a pool, or the region.
        regions: File that names the regions of --tier region and where their state is read.
        folder: Folder with endpoints.yaml and our resources as YAML files; watched for changes.
        secrets_folder: Folder with the keys of carbon sources that RegionProfiles in --folder name: each is a file
            SECRET/KEY (docs/signals.md).
        pool_name: Name of the InferencePool to serve; reads the Kubernetes API.
        pool_namespace: Namespace of the pool.
        kubeconfig: Kubeconfig for --pool-name; by default the service account in a cluster, else the user's own.
        config_file: An EndpointPickerConfig in YAML, as llm-d's picker takes it.
        config_text: The same as text.
        host: Address to listen on.
        grpc_port: Port of ext_proc; 0 lets the system choose.
        health_port: Port of the plaintext gRPC health service; 0 lets the system choose.
        metrics_port: Port of /metrics, /healthz, /readyz and /debug; 0 lets the system choose.
        secure_serving: Serve ext_proc with TLS; self-signed unless --cert-path is given.
        cert_path: Folder with tls.crt and tls.key; read again when they change.
        refresh_metrics_interval: Seconds between scrapes of an engine's metrics.
        metrics_staleness_threshold: Age in seconds from which an engine's metrics count as unknown.
        home_region: RegionProfile of the place where this picker runs; network times count from there.
        max_inflight: Routed requests at once; more get a 429.
        hold_requests: Requests that wait at once while no engine is awake; more get a 503. 0: none waits.
        hold_bytes: Memory that their bodies may take.
        hold_ttl: Seconds that a request waits at most; the gateway's message_timeout must be longer.
        max_sessions: Conversations remembered at once, 145 bytes each; 0: none is followed.
        session_gate: File of a trained gate that keeps conversations where their KV caches are (docs/sessions.md);
            without it only the price of recomputation does.
        quality_model: File of `heliotrope train quality`, for policies with `models.predictor: Learned`.
        quality_url: Scorer of answers' quality, for policies with `models.predictor: Http`; it is sent prompts.
        quality_timeout: Seconds that a request waits for it at most; then the policy's table holds.
        router_core_watts: Watts of one busy core of this picker, to price its own work in choosing models.
        learn: Learn latency and energy from finished requests, and decide by learned models that have earned it.
        state_dir: Folder that keeps what was learned, so that it survives a restart; without it it lives in memory.
        trainer_url: URL of a `heliotrope trainer` that several pickers share; without it this picker trains its own
            models, in a process of low priority.
        tracing: Export OpenTelemetry traces; by default if --otlp-endpoint or OTEL_EXPORTER_OTLP_ENDPOINT is given.
            The other OTEL_* variables hold as well (docs/traces.md).
        otlp_endpoint: URL of the collector, instead of OTEL_EXPORTER_OTLP_ENDPOINT.
        otlp_protocol: How spans travel, instead of OTEL_EXPORTER_OTLP_PROTOCOL; grpc by default.
        trace_ratio: Share of requests to record where no parent decides, in [0, 1], instead of OTEL_TRACES_SAMPLER.
        meter: Attribute energy to requests where counters of accelerators can be read.
        energy_port: Port of the exporter of energy counters (DCGM exporter or node agent) on every node; without it
            they are looked for on the engines' own pages.
        energy_path: Path of the exporter's page.
        max_accelerator_watts: A counter that rises faster is not believed.
        ledger: Keep a ledger of joules if there is a folder for it; else energy is counted in metrics only.
        ledger_dir: Folder for the ledger, which `heliotrope ledger`, `heliotrope settle` and `heliotrope savings` read;
            by default `ledger` in --state-dir, if that is given.
        ledger_slot_seconds: Length of the ledger's slots of time; shorter than the default for replays that play faster
            than real time.
        ledger_max_bytes: Size from which the ledger's oldest files are deleted.
        ledger_max_days: Age from which they are deleted.
        drain_seconds: After SIGTERM, how long to keep serving while gateways look elsewhere.
        grace_seconds: How long requests in flight may then take to end.
        log_level: Least severe level to log.
        log_format: One JSON object a line, or text for people.
        announce: Print one JSON line with the ports on standard output once requests are taken.
    """
    with needs("epp"):
        from heliotrope_epp.app import run
        from heliotrope_epp.datalayer.resources import PoolRef
        from heliotrope_epp.demand.holding import HoldSettings
        from heliotrope_epp.director.director import DirectorSettings
        from heliotrope_epp.learning.settings import LearningSettings
        from heliotrope_epp.ledger.settings import LedgerSettings
        from heliotrope_epp.metering.settings import metering_settings
        from heliotrope_epp.plugins.models.scorer import ScorerSettings
        from heliotrope_epp.plugins.models.settings import ModelSettings
        from heliotrope_epp.plugins.sessions.settings import SessionSettings
        from heliotrope_epp.region.settings import RegionSettings
        from heliotrope_epp.serving import Ports
        from heliotrope_epp.settings import EppSettings, KubernetesSettings
        from heliotrope_epp.tracing.settings import Protocol, TracingFlags, tracing_settings
        from heliotrope_epp.transport.interface import SelfSigned, Tls, TlsFiles
    if tier == "endpoint" and regions is not None:
        raise InvalidInputError("--regions", "is for --tier region")
    if tier == "region":
        refuse_endpoint_flags(
            {
                "--config-file": config_file,
                "--config-text": config_text,
                "--home-region": home_region,
                "--quality-model": quality_model,
                "--quality-url": quality_url,
                "--state-dir": state_dir,
                "--trainer-url": trainer_url,
                "--energy-port": energy_port,
                "--ledger-dir": ledger_dir,
            }
        )
    if config_file is not None and config_text is not None:
        raise InvalidInputError("--config-text", "give --config-file or --config-text, not both")
    if (folder is None) == (pool_name is None):
        raise InvalidInputError("--folder", "give --folder, or --pool-name for the Kubernetes API")
    if secrets_folder is not None and folder is None:
        raise InvalidInputError("--secrets-folder", "is for --folder; in a cluster the operator asks carbon sources")
    if secrets_folder is not None and not secrets_folder.is_dir():
        raise InvalidInputError("--secrets-folder", f"{secrets_folder} is not a folder")
    if trainer_url is not None and not trainer_url.startswith(("http://", "https://")):
        raise InvalidInputError("--trainer-url", "must begin with http:// or https://")
    if trainer_url is not None and not learn:
        raise InvalidInputError("--trainer-url", "has no use with --no-learn; give one of them")
    if trace_ratio is not None and not 0.0 <= trace_ratio <= 1.0:
        raise InvalidInputError("--trace-ratio", "must be in [0, 1]")
    if otlp_endpoint is not None and not otlp_endpoint.startswith(("http://", "https://")):
        raise InvalidInputError("--otlp-endpoint", "must begin with http:// or https://")
    for name, value in (
        ("--ledger-slot-seconds", ledger_slot_seconds),
        ("--ledger-max-bytes", ledger_max_bytes),
        ("--ledger-max-days", ledger_max_days),
    ):
        if value <= 0:
            raise InvalidInputError(name, "must be above 0")
    if not 0 <= hold_requests <= 100_000:
        raise InvalidInputError("--hold-requests", "must be from 0 to 100000")
    if hold_bytes < 0:
        raise InvalidInputError("--hold-bytes", "must be 0 or more")
    if not 0.0 < hold_ttl <= 3_600.0:
        raise InvalidInputError("--hold-ttl", "must be above 0 and at most 3600 seconds")
    if not 0 <= max_sessions <= 100_000_000:
        raise InvalidInputError("--max-sessions", "must be from 0 to 100000000")
    if session_gate is not None and max_sessions == 0:
        raise InvalidInputError("--session-gate", "has no use with --max-sessions 0; give one of them")
    if quality_url is not None and not quality_url.startswith(("http://", "https://")):
        raise InvalidInputError("--quality-url", "must begin with http:// or https://")
    if not 0.001 <= quality_timeout <= 10.0:
        raise InvalidInputError("--quality-timeout", "must be from 0.001 to 10 seconds")
    if not 0.0 <= router_core_watts <= 1_000.0:
        raise InvalidInputError("--router-core-watts", "must be from 0 to 1000")
    if energy_port is not None and not 0 < energy_port < 65_536:
        raise InvalidInputError("--energy-port", "must be a port between 1 and 65535")
    if not energy_path.startswith("/"):
        raise InvalidInputError("--energy-path", "must begin with /")
    if not max_accelerator_watts > 0.0:
        raise InvalidInputError("--max-accelerator-watts", "must be above 0")
    configure(log_level, as_json=log_format == "json", stream=sys.stderr)
    protocol = None if otlp_protocol is None else Protocol(otlp_protocol)
    flags = TracingFlags(tracing, otlp_endpoint, protocol, trace_ratio)
    traces, warnings = tracing_settings(flags, os.environ)
    for warning in warnings:
        logging.getLogger(__name__).warning(warning)
    ledger_folder = state_dir / "ledger" if ledger_dir is None and state_dir is not None else ledger_dir
    tls: Tls | None = None
    if secure_serving:
        tls = SelfSigned() if cert_path is None else TlsFiles(cert_path / "tls.crt", cert_path / "tls.key")
    kubernetes = None if pool_name is None else KubernetesSettings(PoolRef(pool_namespace, pool_name), kubeconfig)
    sessions = SessionSettings(max_sessions, session_gate) if max_sessions else None

    def print_ports(ports: Ports) -> None:
        print(json.dumps(dataclasses.asdict(ports)), flush=True)

    if tier == "region":
        region_settings = RegionSettings(
            tier=read_regions(regions),
            folder=folder,
            secrets_folder=secrets_folder,
            kubernetes=kubernetes,
            host=host,
            grpc_port=grpc_port,
            health_port=health_port,
            metrics_port=metrics_port,
            tls=tls,
            max_inflight=max_inflight,
            tracing=traces,
            sessions=sessions,
            drain_seconds=drain_seconds,
            grace_seconds=grace_seconds,
        )
        try:
            run_region(region_settings, print_ports if announce else None)
        except OSError as error:
            raise InvalidInputError("", f"cannot start: {error}") from error
        return
    settings = EppSettings(
        folder=folder,
        secrets_folder=secrets_folder,
        kubernetes=kubernetes,
        config_text=_config(config_file, config_text),
        host=host,
        grpc_port=grpc_port,
        health_port=health_port,
        metrics_port=metrics_port,
        tls=tls,
        refresh_metrics_interval_s=refresh_metrics_interval,
        director=DirectorSettings(
            max_inflight=max_inflight,
            metrics_stale_after_s=metrics_staleness_threshold,
            hold=HoldSettings(hold_requests, hold_bytes, hold_ttl),
        ),
        learning=LearningSettings(state_dir, trainer_url) if learn else None,
        sessions=sessions,
        models=ModelSettings(
            quality_model,
            None if quality_url is None else ScorerSettings(quality_url, timeout_s=quality_timeout),
            router_core_watts,
        ),
        tracing=traces,
        metering=metering_settings(
            enabled=meter, node_port=energy_port, node_path=energy_path, max_watts=max_accelerator_watts
        ),
        home_region=home_region,
        ledger=LedgerSettings(
            ledger_folder, slot_seconds=ledger_slot_seconds, max_bytes=ledger_max_bytes, max_days=ledger_max_days
        )
        if ledger and ledger_folder is not None
        else None,
        drain_seconds=drain_seconds,
        grace_seconds=grace_seconds,
    )

    try:
        run(settings, print_ports if announce else None)
    except OSError as error:
        raise InvalidInputError("", f"cannot start: {error}") from error


def _config(path: Path | None, text: str | None) -> str:
    if path is None:
        return text or ""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInputError("--config-file", f"cannot be read: {error}") from error
