"""What is optimised: one folder a task. Needs torch and, for GPU kernels, triton; knows nothing of judge or teams."""
