#include <shared_tensor/async_client.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "client/async_core.hpp"
#include "client/default_url.hpp"

namespace shared_tensor {

namespace {

std::shared_ptr<client::AsyncCore> real_core(AsyncOptions options) {
    if (options.threads == 0) throw std::invalid_argument("AsyncOptions: threads must be at least 1");
    options.client.connections = std::max(options.client.connections, options.threads + 1);
    auto surroundings = client::real_surroundings(options.client);
    return std::make_shared<client::AsyncCore>(std::move(options), std::move(surroundings));
}

AsyncOptions at(std::string url) {
    AsyncOptions options;
    options.client.url = client::checked_url(std::move(url));
    return options;
}

}  // namespace

AsyncClient::AsyncClient(std::string url) : AsyncClient(at(std::move(url))) {}
AsyncClient::AsyncClient(AsyncOptions options) : AsyncCaller(real_core(std::move(options)), {}) {}
AsyncClient::~AsyncClient() { core_->stop(); }

}  // namespace shared_tensor
