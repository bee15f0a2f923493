// In-place float32 sums by MPI_Allreduce, of the sizes in bytes that are given. The ranks meet before
// each; the median of rank 0 counts.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

// As many as the benchmark that this is compared with makes.
static long repetitions_of(long bytes) {
  const long fitting = (1L << 30) / bytes;
  return fitting < 11 ? 11 : fitting > 2001 ? 2001 : fitting;
}

static double median_of(float* data, long bytes) {
  const long count = bytes / 4, repetitions = repetitions_of(bytes);
  double* times = malloc((size_t)repetitions * sizeof(double));
  for (long i = 0; i < count; ++i) data[i] = 1e-20f;
  for (long i = -3; i < repetitions; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (i >= 0) times[i] = MPI_Wtime() - begin;
  }
  qsort(times, (size_t)repetitions, sizeof(double), compare);
  const double median = times[repetitions / 2];
  free(times);
  return median;
}

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 1; i < argc; ++i) {
    const long bytes = atol(argv[i]);
    float* data = malloc((size_t)bytes);
    const double median = median_of(data, bytes);
    free(data);
    if (rank == 0) {
      printf("openmpi np=%d bytes=%ld median_us=%.2f algbw_GBs=%.3f\n", size, bytes, median * 1e6,
             (double)bytes / median / 1e9);
    }
  }
  MPI_Finalize();
}
