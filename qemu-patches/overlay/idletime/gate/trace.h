#include "trace/trace-idletime_gate.h"
