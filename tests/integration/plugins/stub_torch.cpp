// Stands for a libtorch: what matters is the name of its file, and where it lies.

extern "C" int stub_torch_number() { return STUB_TORCH; }
