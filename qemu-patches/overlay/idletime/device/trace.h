#include "trace/trace-idletime_device.h"
