//! The node data plane: Services as kernel rules.
