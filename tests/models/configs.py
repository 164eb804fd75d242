"""Valid configurations, made up: config.pbtxt and shoal.toml of models that read without problems."""

from typing import NamedTuple

from hypothesis import strategies as st

from tests.models.builders import INPUTS, OUTPUTS


class Texts(NamedTuple):
    """What a model directory says about itself."""

    config: str
    side: str


_GROUPS = st.sampled_from(
    [
        "",
        "instance_group { }",
        "instance_group { count: 3 }",
        "instance_group { kind: KIND_CPU }",
        "instance_group { kind: KIND_AUTO gpus: [ 0, 1 ] }",
        'instance_group [ { name: "a" kind: KIND_GPU gpus: [ 1 ] count: 2 }, { kind: KIND_CPU } ]',
        'instance_group { rate_limiter { priority: 2 resources { name: "R" count: 1 global: true } } }',
    ]
)
_OTHERS = st.lists(
    st.sampled_from(
        [
            "version_policy { all { } }",
            'parameters { key: "service_base_us" value { string_value: "0" } }',
            'parameters [ { key: "a.b" value { string_value: "x: \\"y\\"" } }, { key: "c" value { } } ]',
            'metric_tags { key: "team" value: "vision" }',
            "optimization { input_pinned_memory { enable: false } cuda { graphs: true } }",
            'optimization { execution_accelerators { cpu_execution_accelerator { name: "openvino" } } }',
            "response_cache { enable: false }",
            "model_transaction_policy { decoupled: false }",
        ]
    ),
    unique_by=lambda text: text.partition(" ")[0],
    max_size=4,
)
_DYNAMIC = st.sampled_from(
    [
        "",
        "dynamic_batching { }",
        "dynamic_batching { preferred_batch_size: [ 4, 2 ] max_queue_delay_microseconds: 500 }",
        "dynamic_batching { preserve_ordering: true }",
        "dynamic_batching { priority_levels: 2 default_priority_level: 2 priority_queue_policy { key: 1"
        " value { timeout_action: DELAY default_timeout_microseconds: 9 max_queue_size: 3 } } }",
    ]
)
_BATCHING = st.sampled_from(
    [
        "",
        'policy = "triton"\n',
        'policy = "torchserve"\nfaithful = true\n',
        'policy = "shoal"\n',
        "max_queue_rows = 64\nmax_queue_requests = 7\n",
        'oversize = "split"\nallowed_batch_sizes = [2, 8]\n',
    ]
)
_EXECUTION = st.sampled_from(["", 'host = "thread"\n', "step_timeout_s = 2.5\nmax_restarts = -1\n"])
_OUTPUT = st.sampled_from(["", '[output]\nname = "y"\n'])


@st.composite
def texts(draw: st.DrawFn) -> Texts:
    """Any of them, for a model of backend ``fake``."""
    rows = draw(st.sampled_from([0, 8]))
    reshape = draw(st.sampled_from(["", " reshape { shape: [ 2, 8 ] }", " reshape { shape: [ 16 ] }"]))
    inputs = INPUTS.replace("[ 16 ]", f"[ 16 ]{reshape}")
    given = f'backend: "fake"\nmax_batch_size: {rows}\n{inputs}\n{OUTPUTS}\n'
    dynamic = draw(_DYNAMIC) if rows else ""
    config = "\n".join([given, dynamic, draw(_GROUPS), *draw(_OTHERS)])
    batching = draw(_BATCHING) if rows else ""
    return Texts(config, f"{draw(_OUTPUT)}[batching]\n{batching}[execution]\n{draw(_EXECUTION)}")
