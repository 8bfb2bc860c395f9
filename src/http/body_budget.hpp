#pragma once

#include "util/budget.hpp"

namespace shared_tensor::http {

/// Bytes of request bodies that are held at once, by requests and by whoever keeps a body longer.
using BodyBudget = Budget;

}  // namespace shared_tensor::http
