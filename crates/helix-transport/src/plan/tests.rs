//! The planner against its promises and against two slow oracles.
