#pragma once

#include "base/concurrency/background.hpp"

namespace shared_tensor {

/// The background executor of this process. It is never destroyed, because its own work may drop the last owner of an
/// object that it would wait for. A forked child makes an executor of its own, since threads are not copied.
Background& background_executor();

/// A second executor, for messages to servers: a server may be slow to answer.
Background& request_executor();

}  // namespace shared_tensor
