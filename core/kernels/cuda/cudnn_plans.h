#pragma once

#include <memory>

#include "core/kernels/cuda/attention_problem.h"
#include "core/kernels/cuda/conv_problem.h"
#include "core/kernels/cuda/row_norm_problem.h"

// cuDNN's plans, as find_conv_plan and its like keep them. kUnimplemented where cuDNN has none.
namespace cohort::cuda {

struct Cudnn;  // core/kernels/cuda/cudnn_graph.h

std::shared_ptr<ConvPlan> plan_conv(const ConvProblem& problem, Cudnn& cudnn);
std::shared_ptr<LibraryPlan> plan_attention(const AttentionProblem& problem, Cudnn& cudnn);
std::shared_ptr<LibraryPlan> plan_row_norm(const RowNormProblem& problem, Cudnn& cudnn);

}  // namespace cohort::cuda
