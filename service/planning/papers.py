"""The bibliography: what plans cite, by the letters that their docstrings use."""

BGM = (
    "Bassily, Guzman, Menart: Differentially private stochastic optimization: new results in convex "
    "and non-convex settings (2021)"
)
KLL = "Kulkarni, Lee, Liu: Private non-smooth ERM and SCO in subquadratic steps (2021)"
KLT = (
    "Kornowski, Liu, Talwar: Improved sample complexity for private nonsmooth nonconvex optimization "
    "(2025)"
)
LR_HT = (
    "Lowy, Razaviyayn: Private stochastic optimization with large worst-case Lipschitz parameter "
    "(2023)"
)
LR_OP = (
    "Lowy, Razaviyayn: Output perturbation for differentially private convex optimization (2021)"
)
OBJECTIVE = (
    "Kifer, Smith, Thakurta: Private convex empirical risk minimization and high-dimensional "
    "regression (2012)"
)
ADASSP = "Wang: Revisiting differentially private linear regression (2018)"
MECHANISMS = "Dwork, Roth: The algorithmic foundations of differential privacy (2014)"
NEWTON = (
    "Ganesh, Haghifam, Steinke, Thakurta: Faster differentially private convex optimization via "
    "second-order methods (2023)"
)
