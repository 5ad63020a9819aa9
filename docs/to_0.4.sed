# Turns sources for Tessera 0.3 into sources for 0.4. For sed -E.
s#<tessera/trainer/text/(chat|chat_template|tokenizer|tokenizer_config)\.hpp>#<tessera/text/\1.hpp>#
s#<tessera/trainer/run/commands\.hpp>#<tessera/trainer/run/train.hpp>\n\#include <tessera/trainer/run/inference_commands.hpp>#
