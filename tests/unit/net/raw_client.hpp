#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/system/unique_fd.hpp"

namespace shared_tensor::test {

/// What a server answered, as this second, simpler reader of HTTP understands it.
struct RawAnswer {
    int status = 0;  ///< 0: the connection ended before an answer was whole
    std::string head;
    std::string body;
    bool has(std::string_view line) const { return head.find(line) != std::string::npos; }
};

/// A client made of plain socket calls: sends any bytes, and shares no code with the project. Every wait ends after
/// half a minute with what there is.
class RawClient {
public:
    /// `receive_buffer`: of a system that takes few bytes at once; 0: its default. `from`: an address of loopback.
    explicit RawClient(int port, const std::string& ip = "127.0.0.1", int receive_buffer = 0,
                       const std::string& from = "");
    explicit RawClient(const std::string& unix_socket);
    explicit RawClient(UniqueFd fd);
    RawClient(RawClient&&) = default;
    RawClient& operator=(RawClient&&) = default;
    virtual ~RawClient() = default;

    int fd() const { return fd_.get(); }
    /// False when the server does not take it.
    virtual bool send(std::string_view bytes);
    /// In one packet, but under TLS in a record for each.
    virtual bool send_each(const std::vector<std::string>& texts);
    /// One answer; interim ones (1xx) are answers too.
    RawAnswer read_answer(bool to_head = false);
    /// Fewer when the server closes, or sends no more.
    std::string read_bytes(std::size_t count);
    /// What comes until the server closes, in order or not.
    std::string read_to_end();
    /// Waits for the server to close; false when bytes come instead.
    bool is_closed();
    void half_close();
    /// Closes so that the server sees a reset.
    virtual void reset();
    virtual void close() { fd_.reset(); }

protected:
    /// Reads some bytes behind `input_`; false at the end.
    virtual bool fill();
    std::string input_;

private:
    UniqueFd fd_;
};

inline RawClient client_from(const std::string& ip, int port) { return RawClient(port, "127.0.0.1", 0, ip); }

/// Sends byte after byte, with pauses, until it is destroyed or the server takes no more.
inline std::jthread trickle(RawClient& client) {
    return std::jthread([&client](const std::stop_token& stop) {
        while (!stop.stop_requested() && client.send("x"))
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
    });
}

/// "POST /path" with a body and the headers it needs.
std::string post(std::string_view path, std::string_view body, std::string_view more_headers = "");
std::string get(std::string_view path, std::string_view more_headers = "");
/// The same in chunks of `piece` bytes.
std::string chunked(std::string_view body, std::size_t piece, std::string_view more_headers = "");

/// A listening socket on loopback whose connections a test answers by hand.
class RawServer {
public:
    RawServer();
    int fd() const { return fd_.get(); }
    int port() const { return port_; }
    RawClient accept();
    /// Reads a request up to and with its body of Content-Length; what came.
    static std::string read_request(RawClient& connection);

private:
    UniqueFd fd_;
    int port_ = 0;
};

}  // namespace shared_tensor::test
