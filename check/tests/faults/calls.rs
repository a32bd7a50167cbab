//! System calls that are refused.
