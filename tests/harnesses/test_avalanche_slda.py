"""Avalanche's streaming LDA and ours, on the same features: their predictions agree."""

from __future__ import annotations

import numpy as np
import torch
from avalanche.benchmarks import benchmark_from_datasets
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.training import StreamingLDA
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import prol
from harnesses.digit_stream import CHUNK, CLASSES, network
from prol.data.builtin import digits
from prol.methods.closed_form.solvers import within_classes

FIRST = 40
"""Images of each class from which both start."""
SHRINKAGE = 0.1


def test_both_agree_in_999_of_1000_predictions() -> None:
    """On all 1,797 digits, after both learnt 400 at once and 1,038 one by one.

    Theirs weighs the n-th deviation by (n - 1) / n with n all samples so far, an exact covariance with those of its
    class: from the same start both converge. Their shrinkage is towards I, ours towards m I, with m the mean variance;
    a / (1 - a) = m b / (1 - b) makes both covariances proportional, which leaves predictions the same.
    """
    data = digits()
    images, labels = data.train.load(np.arange(len(data.train.labels))).images, torch.tensor(data.train.labels)
    tests = data.test.load(np.arange(len(data.test.labels))).images
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    first = torch.cat([order[labels[order] == number][:FIRST] for number in range(CLASSES)])
    later = order[~torch.isin(order, first)]

    ours = prol.create("slda", network(), shrinkage=SHRINKAGE)
    features = torch.cat([ours.encode_images(images), ours.encode_images(tests)])
    ours.learn([images[i] for i in first.tolist()], labels[first].tolist())
    totals = ours.moments.totals()
    means, covariance = within_classes(totals)
    for start in range(0, len(later), CHUNK):
        part = later[start : start + CHUNK].tolist()
        ours.learn([images[i] for i in part], labels[part].tolist())

    unit = float(within_classes(ours.moments.totals())[1].diagonal().mean())
    ratio = unit * SHRINKAGE / (1 - SHRINKAGE)
    theirs = StreamingLDA(
        slda_model=nn.Identity(),
        criterion=nn.CrossEntropyLoss(),
        input_size=features.shape[1],
        num_classes=CLASSES,
        shrinkage_param=ratio / (1 + ratio),
        train_mb_size=CHUNK,
        evaluator=None,
    )
    rows = [ours.row_of[number] for number in range(CLASSES)]
    theirs.muK, theirs.cK = means[rows].float(), totals.counts[rows].float()
    theirs.Sigma, theirs.num_updates = covariance.float(), len(first)
    stream = TensorDataset(features[later], labels[later])
    stream.targets = labels[later].tolist()
    theirs.train(benchmark_from_datasets(train=[as_classification_dataset(stream)]).train_stream, shuffle=False)

    assert theirs.num_updates == len(labels)
    predicted = torch.tensor(ours.classes)[ours.predict_encoded(features).argmax(1)]
    same = predicted == theirs.predict(features).argmax(1)
    right = predicted[len(labels) :] == torch.tensor(data.test.labels)
    tested = same[len(labels) :]
    print(f"agreement on all {len(same)} images {share(same):.4f}, on {len(tested)} test images {share(tested):.4f}")
    print(f"accuracy on test images {share(right):.4f}")
    assert share(same) >= 0.999
    assert share(tested) >= 0.999
    assert 0.9 < share(right) < 0.99  # not so easy that any two classifiers would agree


def share(found: Tensor) -> float:
    return float(found.double().mean())
