"""What the sources need of the compiler, in whichever workspace they are built."""

# The baseline is a CPU with AVX2 and FMA (any since 2015); oneDNN chooses wider kernels at run time.
# -fno-math-errno, -fno-trapping-math: what vectorisation needs of -ffast-math; NaN and infinity keep their meaning.
# -fno-semantic-interposition: position-independent code, which tests need, costs others nothing.
# -fopenmp: its library comes with //third_party:openmp.
COMPILE_FLAGS = [
    "-std=c++20",
    "-march=x86-64-v3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-semantic-interposition",
    "-fopenmp",
]
