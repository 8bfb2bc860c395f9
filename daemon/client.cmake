add_executable(shared-tensor
  client_main.cpp completion.cpp manual_page.cpp cli/command_line.cpp cli/commands.cpp cli/values.cpp
  cli/functions.cpp cli/held_commands.cpp cli/output.cpp cli/stream_command.cpp
  cli/tensor_commands.cpp cli/terminal.cpp cli/top_command.cpp)
shared_tensor_own_code(shared-tensor)
target_compile_options(shared-tensor PRIVATE $<$<CONFIG:Release>:-Os>)
target_include_directories(shared-tensor PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(shared-tensor PRIVATE shared_tensor::shared_tensor cxxopts::cxxopts)
install(TARGETS shared-tensor RUNTIME COMPONENT client)
