#!/usr/bin/env python3
"""Writes the 1797 images of digits that scikit-learn ships as images.npy and labels.npy, and a tenth of them as
val-images.npy and val-labels.npy, into FOLDER. Usage: digits.py FOLDER (needs scikit-learn)
"""
import os
import sys

import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
images, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
order = np.random.default_rng(1).permutation(len(labels))
kept = len(labels) // 10
for name, rows in (("val-", order[:kept]), ("", order[kept:])):
    np.save(os.path.join(sys.argv[1], name + "images.npy"), images[rows])
    np.save(os.path.join(sys.argv[1], name + "labels.npy"), labels[rows])
