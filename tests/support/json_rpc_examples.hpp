#pragma once

#include <string_view>

// Requests, and the answers that a JSON-RPC 2.0 server must give. The same tables test the pure functions and a running
// server, and seed the fuzzer. The server under test shares:
//   subtract(minuend, subtrahend) -> their difference     sum(integers...) -> their sum, any number by position
//   get_data() -> ["hello", 5]                            update, notify_hello, notify_sum: any arguments by position
// and no functions foobar and foo.get.

namespace shared_tensor::test {

struct JsonRpcExample {
    std::string_view name;
    std::string_view request;
    /// Compare with same_answer(): batches are in any order, and an error may have data. Empty: no answer is allowed.
    std::string_view answer;
};

// Answers that several requests get.
inline constexpr std::string_view kParseError =
    R"({"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null})";
inline constexpr std::string_view kInvalid =
    R"({"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":null})";
inline constexpr std::string_view kInvalid3 =
    R"({"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":3})";
inline constexpr std::string_view kInvalidOfBatch =
    R"([{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":null}])";
inline constexpr std::string_view kOne3 = R"({"jsonrpc":"2.0","result":1,"id":3})";
inline constexpr std::string_view kOne3OfBatch = R"([{"jsonrpc":"2.0","result":1,"id":3}])";
inline constexpr std::string_view kHello = R"({"jsonrpc":"2.0","result":["hello",5],"id":3})";

/// The examples of the specification's section 7, in its order.
inline constexpr JsonRpcExample kSpecificationExamples[] = {
    {"rpc call with positional parameters, 1",
     R"({"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1})",
     R"({"jsonrpc": "2.0", "result": 19, "id": 1})"},
    {"rpc call with positional parameters, 2",
     R"({"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2})",
     R"({"jsonrpc": "2.0", "result": -19, "id": 2})"},
    {"rpc call with named parameters, 1",
     R"({"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3})",
     R"({"jsonrpc": "2.0", "result": 19, "id": 3})"},
    {"rpc call with named parameters, 2",
     R"({"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4})",
     R"({"jsonrpc": "2.0", "result": 19, "id": 4})"},
    {"a notification with parameters", R"({"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]})", ""},
    {"a notification without parameters, its method unknown", R"({"jsonrpc": "2.0", "method": "foobar"})", ""},
    {"rpc call of non-existent method", R"({"jsonrpc": "2.0", "method": "foobar", "id": "1"})",
     R"({"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": "1"})"},
    {"rpc call with invalid JSON", R"({"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz])", kParseError},
    {"rpc call with invalid Request object", R"({"jsonrpc": "2.0", "method": 1, "params": "bar"})", kInvalid},
    {"rpc call Batch, invalid JSON",
     R"([
  {"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
  {"jsonrpc": "2.0", "method"
])",
     kParseError},
    {"rpc call with an empty Array", "[]", kInvalid},
    {"rpc call with an invalid Batch, but not empty", "[1]", kInvalidOfBatch},
    {"rpc call with invalid Batch", "[1,2,3]",
     R"([
  {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
  {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
  {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null}
])"},
    {"rpc call Batch",
     R"([
  {"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},
  {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]},
  {"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"},
  {"foo": "boo"},
  {"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"},
  {"jsonrpc": "2.0", "method": "get_data", "id": "9"}
])",
     R"([
  {"jsonrpc": "2.0", "result": 7, "id": "1"},
  {"jsonrpc": "2.0", "result": 19, "id": "2"},
  {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Invalid Request"}, "id": null},
  {"jsonrpc": "2.0", "error": {"code": -32601, "message": "Method not found"}, "id": "5"},
  {"jsonrpc": "2.0", "result": ["hello", 5], "id": "9"}
])"},
    {"rpc call Batch, all notifications",
     R"([
  {"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},
  {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}
])",
     ""},
};

/// Details in which implementations often have bugs.
inline constexpr JsonRpcExample kPeerDetails[] = {
    {"id null asks for an answer", R"({"jsonrpc":"2.0","method":"sum","params":[1,2,4],"id":null})",
     R"({"jsonrpc":"2.0","result":7,"id":null})"},
    {"a string of digits stays a string", R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":"7"})",
     R"({"jsonrpc":"2.0","result":1,"id":"7"})"},
    {"an empty id stays empty", R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":""})",
     R"({"jsonrpc":"2.0","result":1,"id":""})"},
    {"id zero is an id", R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":0})",
     R"({"jsonrpc":"2.0","result":1,"id":0})"},
    {"a negative id", R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":-9223372036854775808})",
     R"({"jsonrpc":"2.0","result":1,"id":-9223372036854775808})"},
    {"an id beyond 2^53 stays exact", R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":9007199254740993})",
     R"({"jsonrpc":"2.0","result":1,"id":9007199254740993})"},
    {"the greatest id", R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":18446744073709551615})",
     R"({"jsonrpc":"2.0","result":1,"id":18446744073709551615})"},
    {"a fractional id", R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":1.5})",
     R"({"jsonrpc":"2.0","result":1,"id":1.5})"},
    {"an id in any script", R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":"\u00e9\ud83d\ude00"})",
     "{\"jsonrpc\":\"2.0\",\"result\":1,\"id\":\"\xC3\xA9\xF0\x9F\x98\x80\"}"},
    {"true is no id", R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":true})", kInvalid},
    {"an array is no id", R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":[1]})", kInvalid},
    {"an object is no id", R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":{"a":1}})", kInvalid},

    {"a bad version keeps the id", R"({"jsonrpc":"1.0","method":"sum","params":[1],"id":3})", kInvalid3},
    {"the version is a string", R"({"jsonrpc":2.0,"method":"sum","params":[1],"id":3})", kInvalid3},
    {"the version must be there", R"({"method":"sum","params":[1],"id":"a"})",
     R"({"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":"a"})"},
    {"the method must be there", R"({"jsonrpc":"2.0","params":[1],"id":3})", kInvalid3},
    {"the method is a string", R"({"jsonrpc":"2.0","method":["sum"],"params":[1],"id":3})", kInvalid3},
    {"an empty method is unknown, not invalid", R"({"jsonrpc":"2.0","method":"","id":3})",
     R"({"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":3})"},
    {"params null is not params left out", R"({"jsonrpc":"2.0","method":"get_data","params":null,"id":3})", kInvalid3},
    {"params are no string", R"({"jsonrpc":"2.0","method":"get_data","params":"bar","id":3})", kInvalid3},
    {"params are no number", R"({"jsonrpc":"2.0","method":"get_data","params":5,"id":3})", kInvalid3},
    {"empty params by position", R"({"jsonrpc":"2.0","method":"get_data","params":[],"id":3})", kHello},
    {"empty params by name", R"({"jsonrpc":"2.0","method":"get_data","params":{},"id":3})", kHello},
    {"params that are missing", R"({"jsonrpc":"2.0","method":"subtract","params":[1],"id":3})",
     R"({"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params"},"id":3})"},
    {"unknown members are ignored",
     R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":3,"extra":{"a":[]},"result":1})", kOne3},
    {"meta must be an object", R"({"jsonrpc":"2.0","method":"sum","params":[1],"id":3,"meta":[]})", kInvalid3},
    {"member names are case-sensitive", R"({"JSONRPC":"2.0","Method":"sum","id":3})", kInvalid3},
    {"escapes in member names", R"({"jsonrpc":"2.0","\u006dethod":"sum","params":[1],"\u0069d":3})", kOne3},

    {"a notification with a bad version is no notification", R"({"jsonrpc":"1.0","method":"update"})", kInvalid},
    {"a notification that fails answers nothing", R"({"jsonrpc":"2.0","method":"subtract","params":["a"]})", ""},
    {"a response sent to a server is no request", R"({"jsonrpc":"2.0","result":19,"id":1})",
     R"({"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":1})"},
    {"a string is no request", R"("subtract")", kInvalid},
    {"null is no request", "null", kInvalid},
    {"whitespace around a request", " \t\r\n{\"jsonrpc\":\"2.0\",\"method\":\"sum\",\"params\":[1],\"id\":3}\n", kOne3},
    {"a byte order mark", "\xEF\xBB\xBF{\"jsonrpc\":\"2.0\",\"method\":\"sum\",\"params\":[1],\"id\":3}", kOne3},

    {"a batch of one answers an array", R"([{"jsonrpc":"2.0","method":"sum","params":[1],"id":3}])", kOne3OfBatch},
    {"a batch in a batch is an invalid item", R"([[]])", kInvalidOfBatch},
    {"a batch of an unknown notification", R"([{"jsonrpc":"2.0","method":"foobar"}])", ""},
    {"notifications beside a call",
     R"([{"jsonrpc":"2.0","method":"foobar"},{"jsonrpc":"2.0","method":"sum","params":[1],"id":3}])", kOne3OfBatch},
    {"notifications beside an invalid item", R"([{"jsonrpc":"2.0","method":"update"},null])", kInvalidOfBatch},
    {"an invalid item keeps its id",
     R"([{"method":"sum","id":"x"},{"jsonrpc":"2.0","method":"sum","params":[1],"id":3}])",
     R"([{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":"x"},{"jsonrpc":"2.0","result":1,"id":3}])"},
    {"equal ids are answered once each",
     R"([{"jsonrpc":"2.0","method":"sum","params":[1],"id":3},{"jsonrpc":"2.0","method":"sum","params":[2],"id":3}])",
     R"([{"jsonrpc":"2.0","result":1,"id":3},{"jsonrpc":"2.0","result":2,"id":3}])"},

    {"two requests are not a text", R"({"jsonrpc":"2.0","method":"update"}{"jsonrpc":"2.0","method":"update"})",
     kParseError},
    {"bytes after a NUL", {"{\"jsonrpc\":\"2.0\",\"method\":\"update\"}\0x", 37}, kParseError},
    {"equal keys in a request", R"({"jsonrpc":"2.0","method":"update","method":"sum","params":[1],"id":3})", kInvalid},
    {"equal keys in the parameters",
     R"({"jsonrpc":"2.0","method":"subtract","params":{"minuend":1,"minuend":2,"subtrahend":3},"id":3})", kInvalid},
    {"equal keys of which one is escaped", R"({"jsonrpc":"2.0","method":"update","\u006dethod":"sum","id":3})",
     kInvalid},
    {"a number beyond double", R"({"jsonrpc":"2.0","method":"sum","params":[1e400],"id":3})", kParseError},
    {"an integer beyond 64 bits", R"({"jsonrpc":"2.0","method":"sum","params":[18446744073709551616],"id":3})",
     kParseError},
    {"invalid UTF-8", "{\"jsonrpc\":\"2.0\",\"method\":\"s\xFFm\",\"params\":[1],\"id\":3}", kParseError},
    {"a lone surrogate", R"({"jsonrpc":"2.0","method":"\ud800","params":[1],"id":3})", kParseError},
};

}  // namespace shared_tensor::test
