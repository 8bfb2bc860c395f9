#pragma once

#include <sys/epoll.h>
#include <unistd.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "measure.hpp"
#include "sockets.hpp"

namespace bench {

/// Calls per second of `connections` clients that each send the next request when the answer is there, driven by one
/// thread with epoll so that the load costs little. `connect` makes one connection.
template <class Connect>
double calls_per_second(int connections, double seconds, const std::string& request, Connect connect) {
    const int poller = ::epoll_create1(EPOLL_CLOEXEC);
    std::vector<HttpConnection> clients;
    for (int i = 0; i < connections; ++i)
        clients.emplace_back(connect());
    for (std::size_t i = 0; i < clients.size(); ++i) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.u64 = i;
        ::epoll_ctl(poller, EPOLL_CTL_ADD, clients[i].fd(), &event);
        clients[i].send(request);
    }
    std::uint64_t answered = 0;
    const auto begin = Clock::now();
    std::vector<epoll_event> events(clients.size());
    while (micros_since(begin) < seconds * 1e6) {
        const int ready = ::epoll_wait(poller, events.data(), connections, 1000);
        if (ready <= 0) throw std::runtime_error("the server does not answer");
        for (int i = 0; i < ready; ++i) {
            HttpConnection& client = clients[events[static_cast<std::size_t>(i)].data.u64];
            if (client.receive() != 200) throw std::runtime_error("the server refused a call");
            client.send(request);
            ++answered;
        }
    }
    const double rate = static_cast<double>(answered) / (micros_since(begin) / 1e6);
    ::close(poller);
    return rate;
}

}  // namespace bench
