"""Alarms are raised by lasting changes, not by noise."""

import random

import pytest

from classifier.online.alarms import CalibrationMonitor, DriftMonitor, build_reference


def test_drift_is_silent_on_the_same_traffic_and_rings_on_other() -> None:
    draw = random.Random(0)
    monitor = build_reference([draw.betavariate(2, 4) for _ in range(5000)])
    for _ in range(3000):
        monitor.observe(draw.betavariate(2, 4))
    assert not monitor.is_alarmed
    assert monitor.stability_index < 0.05
    for _ in range(3000):
        monitor.observe(draw.betavariate(5, 2))
    assert monitor.is_alarmed


def test_drift_needs_traffic_before_it_speaks() -> None:
    monitor = build_reference([0.1] * 100)
    for _ in range(50):
        monitor.observe(0.95)
    assert not monitor.is_alarmed
    assert monitor.stability_index > 1.0


def test_drift_forgets_without_end() -> None:
    monitor = DriftMonitor([1.0] * 10, memory=2.0)
    for difficulty in (*[0.95] * 5000, 0.05):
        monitor.observe(difficulty)
    assert monitor.counts == pytest.approx([1.0, *[0.0] * 8, 1.0])


def test_calibration_holds_then_says_which_way_it_is_off() -> None:
    draw = random.Random(1)
    good = bad = shy = CalibrationMonitor()
    for _ in range(2000):
        good = good.observe(0.7, float(draw.random() < 0.7))
        bad = bad.observe(0.9, float(draw.random() < 0.7))
        shy = shy.observe(0.5, float(draw.random() < 0.7))
    assert (good.verdict, bad.verdict, shy.verdict) == ("holds", "overconfident", "underconfident")


def test_chance_alone_contradicts_no_right_prediction() -> None:
    draw = random.Random(7)
    for _ in range(10):
        monitor = CalibrationMonitor()
        for _ in range(3000):
            monitor = monitor.observe(0.5, float(draw.random() < 0.5))
            assert monitor.verdict == "holds"
