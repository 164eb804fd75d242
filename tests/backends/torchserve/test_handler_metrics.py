"""What handlers measure."""

import logging
from pathlib import Path

import pytest

from tests.backends.torchserve.builders import answers_of, archive

METRICS = """\
    from ts.metrics.dimension import Dimension
    from ts.metrics.metric_type_enum import MetricTypes

    kept = None

    def handle(data, context):
        global kept
        if data is None:
            kept = context.metrics.add_metric_to_cache("Kept", "count", ["Colour"])
            return
        context.metrics.add_counter("Pictures", len(data))
        context.metrics.add_time("Wait", 20, None, "ms")
        context.metrics.add_time("Wait", 40)
        context.metrics.add_size("Weight", 2.5, idx=0, unit="kB", dimensions=[Dimension("Kind", "big")])
        context.metrics.add_percent("Share", 50)
        context.metrics.add_metric("Depth", 3, "m", metric_type=MetricTypes.GAUGE)
        context.metrics.add_counter("Backwards", -1)
        kept.add_or_update(1, ["red"])
        return ["ok"] * len(data)
    """


def test_metrics_of_a_handler_are_summed_up_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        answers_of(archive(tmp_path, METRICS), b"", b"")

    (told,) = [record.getMessage() for record in caplog.records if "metrics of its handler" in record.getMessage()]
    assert "model 'm'" in told
    for part in (
        "Pictures 2;",
        "Wait 2 values, mean 30 ms, last 40 ms",
        "Weight[Kind:big] 1 values, mean 2.5 kB, last 2.5 kB",
        "Share 1 values, mean 50 percent",
        "Depth 1 values, mean 3 m",
        "Kept[Colour:red] 1;",
        "PredictionTime 1 values",
    ):
        assert part in told
    assert "metric 'Backwards' got the value -1" in caplog.text


def test_names_without_end_do_not_fill_the_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    code = """\
        def handle(data, context):
            if data is not None:
                for index in range(1_500):
                    context.metrics.add_counter(f"n{index}", 1)
                return [""]
        """

    answers_of(archive(tmp_path, code), b"")

    assert caplog.text.count("has made 1000 metrics") == 1


def test_methods_are_timed_where_the_configuration_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    code = """\
        from ts.handler_utils.timer import timed
        from ts.torch_handler.base_handler import BaseHandler
        class Handler(BaseHandler):
            def initialize(self, context): ...
            @timed
            def preprocess(self, data): return data
            def inference(self, data): return data
            def postprocess(self, data): return ["x"] * len(data)
        """

    with caplog.at_level(logging.INFO):
        answers_of(archive(tmp_path, code, config="handler:\n  profile: true\n"), b"")

    assert "ts_handler_preprocess 1 values" in caplog.text
    assert "HandlerTime 1 values" in caplog.text
