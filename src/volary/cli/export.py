"""Copy a checkpoint's weights to a file of their own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from volary.cli.command import arguments
from volary.cli.command.output import new_file, remark, say, say_json
from volary.errors import BadInput
from volary.run.owner import refuse_foreign

if TYPE_CHECKING:
    from volary.run.directory import RunDirectory

WEIGHTS, PARTS = "model.safetensors", "model-"  # what one process writes; what several do begins so
GRAPHS = (".pt2", ".onnx")


@click.command()
@arguments.run
@arguments.trust
@arguments.checkpoint
@arguments.average
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Where to; default: RUN-step-N.safetensors here.")
@click.option("--caffe", is_flag=True, help="Write Caffe's files: OUTPUT.caffemodel, and its network as .prototxt.")
@arguments.as_json
def export(
    run: RunDirectory,
    trust: bool,
    which: str | None,
    average: bool,
    output: Path | None,
    caffe: bool,
    as_json: bool,
) -> None:
    """Copy the weights of a verified checkpoint of RUN to a file of their own. Nothing is overwritten.

    If OUTPUT ends in .pt2 or .onnx it is the network itself, for torch.export.load or for ONNX's runtimes.
    """
    refuse_foreign(run.path, run.session, trust=trust)
    if caffe:
        _export_to_caffe(run, which, output, as_json, average=average)
        return
    _refuse_ending(output, average=average)
    if output is not None and output.suffix in GRAPHS:
        _export_graph(run, which, output, as_json)
        return

    from volary.driver.tasks.weight_labels import labels_of
    from volary.monitor.outline import outline
    from volary.monitor.wording import size
    from volary.run.checkpoint_files.choice import choose
    from volary.run.checkpoints import Checkpoints, read
    from volary.run.content import whole
    from volary.run.disk import Disk, replace_file
    from volary.run.labels import labelled

    manifest = choose(run, which, remark)
    written = [name for name in manifest.files if name == WEIGHTS or name.startswith(PARTS)]
    if outline(run.session).own_loop and not written:
        raise BadInput(f"{run.path} saved no network called model; accepted: a loop that calls worker.save(model=...)")
    file = new_file(output or Path(f"{run.name}-step-{manifest.step}.safetensors"), "--output")
    folder = Checkpoints(run.checkpoints).path(manifest.step)
    if average:
        from volary.train.afterwards import load_network, load_trained
        from volary.train.state.weights import weights_content, weights_of

        if outline(run.session).own_loop:
            module = load_network(run, manifest.step, average=True)
        else:
            module, _ = load_trained(run, manifest.step, average=True)
        weights = whole(weights_content(weights_of(module)))
    elif WEIGHTS in manifest.files:
        weights = read(folder, manifest, WEIGHTS)
    else:
        from volary.train.state.weights import SavedWeights, weights_content

        saved = SavedWeights(folder, manifest)
        weights = whole(weights_content({name: saved.whole(name) for name in saved}))
    weights = labelled(weights, labels_of(run, manifest.step))
    replace_file(Disk(), file, weights)
    if as_json:
        say_json({"run": str(run.path), "step": manifest.step, "file": str(file.absolute()), "bytes": len(weights)})
        return
    say(f"wrote {file}: the {'averages' if average else 'weights'} of step {manifest.step}, {size(len(weights))}")


def _refuse_ending(output: Path | None, *, average: bool) -> None:
    """Raise BadInput for an ending that means something else, or that of a graph, which has no average."""
    suffix = "" if output is None else output.suffix
    if suffix not in ("", ".safetensors", *GRAPHS):
        raise BadInput(f"--output is {output}; accepted: a file that ends in .safetensors, {' or '.join(GRAPHS)}")
    if average and suffix in GRAPHS:
        raise BadInput(f"--output is {output}; accepted with --average: a file of weights, as .safetensors")


def _export_to_caffe(
    run: RunDirectory, which: str | None, output: Path | None, as_json: bool, *, average: bool
) -> None:
    """The network as a prototxt file, and its weights as a caffemodel beside it."""
    from volary.monitor.outline import outline
    from volary.run.checkpoint_files.choice import choose

    if outline(run.session).own_loop:
        raise BadInput(f"{run.path} is of a training loop of your own; accepted with --caffe: a run of a session")
    step = choose(run, which, remark).step
    file = output or Path(f"{run.name}-step-{step}.caffemodel")
    if file.suffix != ".caffemodel":
        raise BadInput(f"--output is {file}; accepted with --caffe: a file that ends in .caffemodel")
    weights, network = (new_file(file.with_suffix(suffix), "--output") for suffix in (".caffemodel", ".prototxt"))
    from volary.network.caffe.reading.binary import written
    from volary.network.caffe.reading.text_writer import in_text
    from volary.network.caffe.writing.prototxt import prototxt
    from volary.run.disk import Disk, replace_file
    from volary.train.afterwards import load_trained

    net = prototxt(*load_trained(run, step, average=average), run.name)
    replace_file(Disk(), weights, written(net))
    replace_file(Disk(), network, in_text(net).encode())
    if as_json:
        files = {"file": str(weights.absolute()), "network": str(network.absolute())}
        say_json({"run": str(run.path), "step": step, **files})
        return
    say(f"wrote {weights} and {network}: the network of step {step}")


def _export_graph(run: RunDirectory, which: str | None, output: Path, as_json: bool) -> None:
    """The network as a graph, compared with the module, with what is needed to use it."""
    from volary.monitor.outline import outline

    if outline(run.session).own_loop:
        raise BadInput(
            f"{run.path} is of a training loop of your own, and does not say what its inputs are like; accepted with "
            f"--output {output.name}: a run of a session"
        )
    new_file(output, "--output")

    import torch

    from volary.driver.tasks.weight_labels import labels_of
    from volary.prediction.start import PredictionSettings, request_of
    from volary.run.disk import Disk, replace_file
    from volary.train.exporting import onnx, pt2
    from volary.train.exporting.description import description
    from volary.train.predicting.predictor import Predictor

    request = request_of(run, PredictionSettings(checkpoint=which), Path(), remark)
    predictor = Predictor.of(run, request, torch.device("cpu"))
    made = pt2 if output.suffix == ".pt2" else onnx
    content, difference = made.content(predictor, description(predictor, labels_of(run, request.step)))
    replace_file(Disk(), output, content)
    if as_json:
        facts = {"bytes": len(content), "difference": difference}
        say_json({"run": str(run.path), "step": request.step, "file": str(output.absolute()), **facts})
        return
    say(f"wrote {output}: the network of step {request.step}; its outputs differ by {difference:.1e} of the largest")
