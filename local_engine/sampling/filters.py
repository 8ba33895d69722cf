"""What top-k, top-p and min-p keep of a row of logits. Knows no request and draws nothing."""

import numpy as np
import torch

from local_engine.sampling.sampling_params import SamplingParams

# Enough candidates for almost every nucleus; for the remaining rows the whole vocabulary is examined.
SHORTLIST = 256


def candidate_distribution(logits: torch.Tensor, params: SamplingParams) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Probabilities to draw from, and their token ids, most likely first; ids of None mean the whole vocabulary."""
    probabilities = (logits / params.temperature).softmax(dim=-1)
    if params.top_k == 0 and params.top_p >= 1.0 and params.min_p <= 0.0:
        return probabilities, None
    likeliest, ids = probabilities.topk(min(params.top_k or SHORTLIST, len(probabilities)))
    if params.top_k == 0 and not _reaches(likeliest, params):
        return probabilities * _kept(probabilities, params), None
    keep = likeliest >= params.min_p * likeliest[0]
    if params.top_p < 1.0:
        # A candidate stays while the mass before it is below top_p, so the one that crosses the threshold is kept.
        top_k_mass = likeliest.sum() if params.top_k else 1.0
        keep &= likeliest.cumsum(-1) - likeliest < params.top_p * top_k_mass
    keep[0] = True
    return likeliest * keep, ids


def _reaches(likeliest: torch.Tensor, params: SamplingParams) -> bool:
    """Whether the filters keep nothing beyond these, which are sorted."""
    return float(likeliest.sum()) >= params.top_p or float(likeliest[-1]) < params.min_p * float(likeliest[0])


def _kept(probabilities: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """What min-p and top-p keep of a whole vocabulary: sorts values only, which costs a twentieth of sorting their
    ids."""
    keep = probabilities >= params.min_p * probabilities.max()
    return keep & torch.from_numpy(_nucleus(probabilities.numpy(), params.top_p)) if params.top_p < 1.0 else keep


def _nucleus(probabilities: np.ndarray, top_p: float) -> np.ndarray:
    """Tokens with less mass than `top_p` before them; of equal ones at the threshold as many as needed."""
    ordered = np.sort(probabilities)[::-1]
    count = min(len(ordered), 1 + int(np.searchsorted(ordered.cumsum(dtype=np.float64), top_p)))
    least = ordered[count - 1]
    keep = probabilities > least
    keep[np.flatnonzero(probabilities == least)[: count - np.count_nonzero(keep)]] = True
    return keep
