"""``wengert.autograd.gradcheck``: derivatives held to differences."""

from wengert.transforms.gradcheck import gradcheck, gradgradcheck
from wengert.transforms.gradcheck_report import Finding, GradcheckError, GradcheckReport, Verdict

__all__ = ["Finding", "GradcheckError", "GradcheckReport", "Verdict", "gradcheck", "gradgradcheck"]
