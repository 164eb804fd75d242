"""Broken model directories, one mistake each, and where and how each is told."""

from collections.abc import Mapping
from typing import NamedTuple

import onnx

from tests.models.builders import FAKE, edited, identity_model, two_by_two_model

Content = str | bytes | onnx.ModelProto


class Broken(NamedTuple):
    """One mistake.

    Attributes:
        files: By path inside the model's directory ``m``; a path that ends with a slash is an empty directory.
        place: ``file:line``, or the file alone where no line can be named.
        field: Field path.
        found: Part of what is told that there is.
        expected: Part of what is told that should be there.
        fix: Part of what is told to write.
    """

    files: Mapping[str, Content]
    place: str
    field: str
    found: str
    expected: str
    fix: str


PBTXT, SIDE = "config.pbtxt", "shoal.toml"
BATCHED, FIXED = identity_model(("N", 16)), identity_model((1, 3, 512, 512))


def fake(config: str, side: str = "", **more: Content) -> dict[str, Content]:
    files: dict[str, Content] = {PBTXT: config, "1/": "", **more}
    return {**files, SIDE: side} if side else files


def onnx_model(config: str, model: onnx.ModelProto) -> dict[str, Content]:
    return {PBTXT: config, "1/model.onnx": model}


def tensors(dims: str) -> str:
    return (
        f'input {{ name: "x" data_type: TYPE_FP32 {dims} }}\n'
        f'output {{ name: "y" data_type: TYPE_FP32 dims: [ 1, 3, 512, 512 ] }}\n'
    )


SYNTAX = {
    "unknown field, almost known": Broken(
        fake(FAKE + "dynamic_batch {}"), "config.pbtxt:5", "dynamic_batch",
        'unknown field "dynamic_batch"', 'did you mean "dynamic_batching"?', "dynamic_batching {}"),
    "unknown field inside": Broken(
        fake(FAKE + "dynamic_batching {\n  max_queue_delay_ms: 5\n}"), "config.pbtxt:6",
        "dynamic_batching.max_queue_delay_ms", 'unknown field "max_queue_delay_ms"', "ModelDynamicBatching", ""),
    "unknown word": Broken(
        fake(FAKE + "instance_group { kind: KIND_GPUS }"), "config.pbtxt:5", "instance_group[0].kind",
        "KIND_GPUS", "one of KIND_AUTO, KIND_GPU", "instance_group { kind: KIND_GPU }"),
    "no colon": Broken(
        fake("\nmax_batch_size 8"), "config.pbtxt:2", "max_batch_size", "8", '":"', ""),
    "unclosed block": Broken(
        fake(FAKE + "dynamic_batching {"), "config.pbtxt:5", "dynamic_batching", "the end of the text", '"}"', ""),
    "word for a number": Broken(
        fake("max_batch_size: eight"), "config.pbtxt:1", "max_batch_size", "eight", "an integer", ""),
    "number too large": Broken(
        fake("max_batch_size: 4294967296"), "config.pbtxt:1", "max_batch_size", "4294967296", "in the range", ""),
    "not quoted": Broken(
        fake("backend: onnxruntime"), "config.pbtxt:1", "backend", "onnxruntime", "a quoted string", ""),
    "field given twice": Broken(
        fake("max_batch_size: 1\nmax_batch_size: 2"), "config.pbtxt:2", "max_batch_size", "2", "this field once", ""),
    "comma at the end": Broken(
        fake('input { name: "x" dims: [ 3, ] }'), "config.pbtxt:1", "input[0].dims[0]", "]", "no comma before ]", ""),
    "not UTF-8": Broken(
        {PBTXT: b"\nname: \"\xff\"", "1/": ""}, "config.pbtxt:2", "encoding", "0xff", "UTF-8", ""),
    "no TOML": Broken(
        fake(FAKE, "[batching\n"), "shoal.toml:1", "(top level)", "a mistake", "TOML", ""),
}  # fmt: skip

VALUES = {
    "another name": Broken(
        fake(FAKE + 'name: "resnet"'), "config.pbtxt:5", "name", '"resnet"', '"m"', 'name: "m"'),
    "unknown backend": Broken(
        fake(edited("fake", "dali")), "config.pbtxt:1", "backend", '"dali"', "available here: onnxruntime", ""),
    "unknown platform": Broken(
        fake(FAKE + 'platform: "caffe2_netdef"'), "config.pbtxt:5", "platform", "caffe2", "onnxruntime_onnx", ""),
    "platform of another backend": Broken(
        fake(FAKE + 'platform: "onnxruntime_onnx"'), "config.pbtxt:1", "backend", '"fake"', "remove one", ""),
    "neither backend nor file": Broken(
        fake(edited('backend: "fake"', "")), "config.pbtxt", "backend", "no known model file", "model.onnx",
        'backend: "onnxruntime"'),
    "SavedModel without config": Broken(
        {"1/model.savedmodel/saved_model.pb": b""}, "config.pbtxt", "backend", '"tensorflow"',
        "python -m tf2onnx.convert --saved-model", 'backend: "onnxruntime"'),
    "SavedModel with config": Broken(
        {PBTXT: 'max_batch_size: 8\nplatform: "tensorflow_savedmodel"', "1/model.savedmodel/saved_model.pb": b""},
        "config.pbtxt:2", "platform", 'backend "tensorflow"', "python -m tf2onnx.convert --saved-model",
        'backend: "onnxruntime"'),
    "no model file": Broken(
        fake('backend: "onnxruntime"'), "config.pbtxt", "default_model_filename", "no such file", '"model.onnx"', ""),
    "file elsewhere": Broken(
        fake('backend: "onnxruntime"\ndefault_model_filename: "../model.onnx"'), "config.pbtxt:2",
        "default_model_filename", "'../model.onnx'", "a plain file name", 'default_model_filename: "model.onnx"'),
    "damaged model file": Broken(
        {"1/model.onnx": b"\0\0\0"}, "1/model.onnx", "", "", "an ONNX model", "export or copy it again"),
    "input without a name": Broken(
        fake(edited('name: "x"', "")), "config.pbtxt:3", "input[0].name", "no name", "the name of the input", ""),
    "two inputs of one name": Broken(
        fake(FAKE + 'input { name: "x" data_type: TYPE_FP32 dims: 1 }'), "config.pbtxt:5", "input[1].name", '"x"',
        "a name that input[0] does not have", ""),
    "no input": Broken(
        fake('backend: "fake"\noutput { name: "y" data_type: TYPE_FP32 dims: 1 }'), "config.pbtxt", "input",
        "no input", "at least one input", ""),
    "no type": Broken(
        fake(edited('"y" data_type: TYPE_FP32', '"y"')), "config.pbtxt:4", "output[0].data_type", "TYPE_INVALID",
        "TYPE_FP32", "data_type: TYPE_FP32"),
    "dimension 0": Broken(
        fake(edited("[ 16 ]", "[ 3, 0 ]")), "config.pbtxt:3", "input[0].dims[1]", "0", "-1 for a variable one",
        "dims: [ 3, -1 ]"),
    "format of other dims": Broken(
        fake(edited('"x"', '"x" format: FORMAT_NCHW')), "config.pbtxt:3", "input[0].format", "1 dims", "3 dims",
        "format: FORMAT_NONE"),
    "preferred size above the largest": Broken(
        fake(FAKE + "dynamic_batching { preferred_batch_size: [ 4, 16 ] }"), "config.pbtxt:5",
        "dynamic_batching.preferred_batch_size[1]", "16", "1 to max_batch_size, 8", "preferred_batch_size: [ 4 ]"),
    "batching without batches": Broken(
        fake(edited("size: 8", "size: 0") + "dynamic_batching { }"), "config.pbtxt:5", "dynamic_batching",
        "max_batch_size 0", "remove dynamic_batching", ""),
    "level above the levels": Broken(
        fake(FAKE + "dynamic_batching { priority_levels: 2 default_priority_level: 3 }"), "config.pbtxt:5",
        "dynamic_batching.default_priority_level", "3", "from 1 to priority_levels, 2", "default_priority_level: 1"),
    "sequence batcher": Broken(
        fake(FAKE + "sequence_batching { }"), "config.pbtxt:5", "sequence_batching", "a sequence batcher",
        "not supported yet", "remove it"),
    "response cache": Broken(
        fake(FAKE + "response_cache {\n  enable: true\n}"), "config.pbtxt:6", "response_cache.enable", "true",
        "not supported yet", "remove it"),
    "negative count": Broken(
        fake(FAKE + "instance_group [ { count: -2 } ]"), "config.pbtxt:5", "instance_group[0].count", "-2",
        "a number of instances", "count: 1"),
    "GPUs of a CPU group": Broken(
        fake(FAKE + "instance_group { kind: KIND_CPU gpus: 0 }"), "config.pbtxt:5", "instance_group[0].gpus[0]",
        "[0] with KIND_CPU", "KIND_GPU", "kind: KIND_GPU"),
    "no labels": Broken(
        fake(edited('"y"', '"y" label_filename: "labels.txt"')), "config.pbtxt:4", "output[0].label_filename",
        "no file 'labels.txt'", "one label a line", ""),
    "no versions kept": Broken(
        fake(FAKE + "version_policy { latest { num_versions: 0 } }"), "config.pbtxt:5",
        "version_policy.latest.num_versions", "0", "at least 1", "version_policy { latest { num_versions: 1 } }"),
    "accelerator without a name": Broken(
        fake(FAKE + "optimization { execution_accelerators { gpu_execution_accelerator { } } }"), "config.pbtxt:5",
        "optimization.execution_accelerators.gpu_execution_accelerator[0].name", "no name", "an accelerator",
        'name: "tensorrt"'),
}  # fmt: skip

AGAINST_THE_MODEL = {
    "batches of one": Broken(
        onnx_model("max_batch_size: 1\n" + tensors("dims: [ 1, 3, 512, 512 ]"), FIXED), "config.pbtxt:1",
        "max_batch_size", "1", "first dimension is not variable", "max_batch_size: 0"),
    "batches of one, with a reshape": Broken(
        onnx_model(
            "max_batch_size: 1\n" + tensors("dims: [ 3, 512, 512 ] reshape { shape: [ 1, 3, 512, 512 ] }"), FIXED),
        "config.pbtxt:1", "max_batch_size", "1", "first dimension is not variable", "max_batch_size: 0"),
    "reshape that the model does not take": Broken(
        onnx_model("max_batch_size: 0\n" + tensors("dims: [ 3, 512, 512 ] reshape { shape: [ 3, 512, 512 ] }"), FIXED),
        "config.pbtxt:2", "input[0].reshape.shape", "[3, 512, 512]", '[1, 3, 512, 512], the shape of "x"',
        "reshape { shape: [ 1, 3, 512, 512 ] }"),
    "reshape for code": Broken(
        {PBTXT: edited("fake", "python").replace("[ 16 ]", "[ 16 ] reshape { shape: [ 4, 4 ] }", 1), "1/model.py": ""},
        "config.pbtxt:3", "input[0].reshape", "a shape", "the model's own code reshapes", "remove it"),
    "negative largest batch": Broken(
        onnx_model("max_batch_size: -1\n" + tensors("dims: [ 1, 3, 512, 512 ]"), FIXED), "config.pbtxt:1",
        "max_batch_size", "-1", "first dimension is not variable", "max_batch_size: 0"),
    "dims without the batch dimension": Broken(
        onnx_model("max_batch_size: 0\n" + tensors("dims: [ 3, 512, 512 ]"), FIXED), "config.pbtxt:2",
        "input[0].dims", "[3, 512, 512]", '[1, 3, 512, 512], the shape of "x" in 1/model.onnx',
        "dims: [ 1, 3, 512, 512 ]"),
    "largest batch of a model without batches": Broken(
        onnx_model("max_batch_size: 100\n" + tensors("dims: [ 1, 3, 512, 512 ]"), FIXED), "config.pbtxt:1",
        "max_batch_size", "100", "first dimension is not variable", "max_batch_size: 0"),
    "another input": Broken(
        onnx_model('max_batch_size: 8\noutput { name: "z" }', BATCHED), "config.pbtxt:2",
        "output[0].name", '"z"', 'one of the model\'s outputs: "y"', 'name: "y"'),
    "another type": Broken(
        onnx_model('input { name: "a" data_type: TYPE_FP16 }', two_by_two_model()), "config.pbtxt:1",
        "input[0].data_type", "TYPE_FP16", 'TYPE_FP32, the type of "a"', "data_type: TYPE_FP32"),
    "PyTorch without tensors": Broken(
        {PBTXT: 'output { name: "output__0" data_type: TYPE_FP32 dims: 1000 }', "1/model.pt": b""},
        "config.pbtxt", "input", "no input", "the file does not say", 'name: "input__0"'),
}  # fmt: skip

SIDE_FILES = {
    "unknown key": Broken(
        fake(FAKE, "[batching]\npolcy = 'triton'"), "shoal.toml:2", "batching.polcy", "an unknown key",
        "one of policy", 'policy = "triton"'),
    "key of another table": Broken(
        fake(FAKE, 'host = "thread"'), "shoal.toml:1", "host", "an unknown key", "one of labels", "[execution]"),
    "impossible value": Broken(
        fake(FAKE, "[batching]\nmax_queue_rows = 0"), "shoal.toml:2", "batching.max_queue_rows", "0", "equal to 1", ""),
    "unknown policy": Broken(
        fake(FAKE, '[batching]\npolicy = "tritn"'), "shoal.toml:2", "batching.policy", '"tritn"', "one of",
        'policy = "triton"'),
    "unknown parameter of a policy": Broken(
        fake(FAKE, '[batching]\npolicy = "torchserve"\n[batching.parameters]\nbatchSize = 4'), "shoal.toml:4",
        "batching.parameters.batchSize", "", "batch_size", ""),
    "queue without room": Broken(
        fake(FAKE, "[batching]\nmax_queue_rows = 4"), "shoal.toml:2", "batching.max_queue_rows", "4",
        "at least max_batch_size, 8", "max_queue_rows = 8"),
    "sizes that end elsewhere": Broken(
        fake(FAKE, "[batching]\nallowed_batch_sizes = [1, 4]"), "shoal.toml:2", "batching.allowed_batch_sizes",
        "[1, 4]", "end with max_batch_size, 8", "allowed_batch_sizes = [1, 4, 8]"),
    "picture of another size": Broken(
        fake(edited("[ 16 ]", "[ 3, 299, 299 ]"), "[preprocessing]\ncrop = 224"), "shoal.toml:2",
        "preprocessing.crop", "[3, 224, 224]", "[3, 299, 299]", "crop = 299"),
    "labels that are not there": Broken(
        fake(FAKE, 'labels = "classes.txt"'), "shoal.toml:1", "labels", "no file 'classes.txt'", "one label a line",
        ""),
}  # fmt: skip

ON_THIS_MACHINE = {
    "no GPU": Broken(
        onnx_model("max_batch_size: 4\ninstance_group [ {\n  kind: KIND_GPU\n} ]", BATCHED), "config.pbtxt:3",
        "instance_group[0].kind", "this machine has no GPU", "", "--allow-cpu"),
    "parameter of the engine": Broken(
        onnx_model('parameters { key: "intra_op_thread_count"\n  value { string_value: "many" } }', BATCHED),
        "config.pbtxt:2", "parameters.intra_op_thread_count.string_value", "'many'", "number", ""),
    "accelerator that there is not": Broken(
        onnx_model(
            'optimization { execution_accelerators {\n  cpu_execution_accelerator { name: "xnnpack" } } }', BATCHED),
        "config.pbtxt:2", "optimization.execution_accelerators.cpu_execution_accelerator[0].name", "xnnpack",
        "openvino", ""),
    "no version": Broken(
        {PBTXT: FAKE}, "m", "", "no version directory", "at least one, e.g. m/1/", ""),
    "only other versions": Broken(
        fake(FAKE + "version_policy { specific { versions: 7 } }"), "m", "", "only the versions 1", "version_policy",
        ""),
}  # fmt: skip

BROKEN = {**SYNTAX, **VALUES, **AGAINST_THE_MODEL, **SIDE_FILES, **ON_THIS_MACHINE}
