"""What tests do that no program can, and tests that would say nothing of compiled functions; see :mod:`tests.variants`."""

__all__ = ["LEFT_OUT", "REFUSALS"]

REFUSALS = {
    # what a refusal says: why no program can be made
    r"needs the values of a tensor": "values of more than 64 elements, or of what only a call makes, would decide",
    r"(manual_seed|set_state)\(\) of a generator": "a generator would be seeded once, and go on from there in each call",
    r"step hooks of an optimiser": "Python would have to run within the program",
    r"a scheduler's step\(\) that is given a tensor": "Python would need its value",
    r"a scheduler that is made inside": "it sets rates that Python goes on with at once",
    r"it returns \w+ of an optimiser whose scheduler it steps": "the number is another one before the step and after it",
    r"requires grad into a tensor from outside": "the tensor would get a history that belongs to one call",
    r"gives a tensor from outside another shape, memory or history": "the same",
    r"what has a tangent into a tensor from outside": "the same, in forward mode",
    r"leaves a hook on a tensor from outside": "each call would leave one more",
    r"walks back through what was computed before": "each call would have another history to walk",
    r"cannot walk back from what it returns": "the error belongs to the caller's walk",
    r"requires the gradient of a tensor that it made itself": "nobody outside could ask for that",
    r"which each call would have to make anew": "the result is an object of Python that only a call can make",
    r"data_ptr\(\)": "memory is another one in each call",
    r"it keeps a tensor that it makes|would do only once|it changes attributes of a module": "Python would act once",
    r"save_on_disk": "there are no saved tensors within a program",
    r"writes into the array of a tensor": "by NumPy, or what from_numpy() made: a program holds no arrays of NumPy",
    r"resize_\(\) cannot be captured": "the tensor would have another memory after the call",
    r"gradcheck": "it moves tensors where they lie, by Python",
}

LEFT_OUT = [
    # ways, the reason, and the tests or files
    (
        "body calls functions", "it is about time, memory, threads or processes of plain calls",
        {
            "tape/test_backward.py::test_a_million_chained_operators_neither_overflow_nor_leak_when_freed",
            "tape/test_backward.py::test_a_long_saved_chain_is_freed_without_recursion",
            "tape/test_backward.py::test_ten_thousand_steps_without_the_collector_do_not_grow",
            "tape/test_leaves.py::test_threads_that_share_a_leaf_lose_no_gradient",
            "tape/test_backward.py::test_double_backward_steps_without_the_collector_do_not_grow",
            "transforms/test_checkpoint_memory.py",
            "transforms/test_implicit.py::test_jacobians_and_hessians",
        },
    ),
    (
        "body calls", "thousands of steps are captured one by one, each with a decision of its own, which takes minutes",
        {
            "optim/test_recorded.py", "transforms/test_ode.py", "transforms/test_ode_adjoint.py",
            "transforms/test_ode_events.py",
        },
    ),
    (
        "body", "an error of a kernel comes up when the program runs, and not on the line that waits for it",
        {
            "transforms/test_batched_errors.py::test_indices_out_of_bounds",
            "transforms/test_batched_errors.py::test_what_an_operator_refuses",
            "transforms/test_batched_operators.py::test_what_is_wrong_for_one_example_is_wrong_for_a_batch",
            "operators/test_errors.py::test_whatever_replaces_an_argument_gives_a_result_or_a_clear_error",
            "operators/test_loss_edges.py::test_a_target_out_of_range_is_named",
            "operators/test_indexing.py::test_a_failed_write_changes_nothing",
            "operators/test_indexing.py::test_keys_refused",
            "operators/test_indexing.py::test_no_index_leaves_the_memory",
            "operators/test_errors.py::test_nonsense_is_refused_by_name[31]",  # singular pivots and infinities
            "operators/test_errors.py::test_nonsense_is_refused_by_name[32]",
            "operators/test_errors.py::test_nonsense_is_refused_by_name[33]",
            "operators/test_errors.py::test_nonsense_is_refused_by_name[34]",
            "operators/test_errors.py::test_nonsense_is_refused_by_name[35]",
            "operators/test_errors.py::test_nonsense_is_refused_by_name[36]",
            "operators/test_errors.py::test_nonsense_is_refused_by_name[37]",
            "operators/test_linalg.py::test_a_loss_that_depends_on_phases_is_refused",
            "operators/test_linalg_factors.py::test_checks_of_factors_work_inside_transforms",
            "operators/test_loss_edges.py::test_binary_cross_entropy_at_certain_probabilities",
            "operators/test_linalg.py::test_errors_name_the_matrix",
            "operators/test_linalg_factors.py::test_singular_matrices_in_ldl",
            "operators/test_pointwise_edges.py::test_refusals_say_why[1]",  # an integer divided by zero
            "core/test_generator.py::test_wrong_requests_are_refused[<lambda>-ValueError-p]",
            "core/test_generator.py::test_wrong_requests_are_refused[<lambda>-ValueError-multinomial]",
        },
    ),
    (
        "body calls functions", "checkpoint does nothing in a program, so there is nothing to compare or to choose",
        {
            "transforms/test_checkpoint_meets.py::test_an_argument_changed_since_is_refused_and_both_lines_named",
            "transforms/test_checkpoint_report.py",
            "transforms/test_checkpoint_selective.py::test_a_policy_is_told_the_operator_its_arguments_and_its_result",
        },
    ),
    (
        "calls functions", "it looks at what plain calls record, save or make the first time",
        {
            "tape/test_function.py::test_both_styles_differentiate_to_any_order",
            "tape/test_function.py::test_nothing_is_recorded_without_need",
            "tape/test_function.py::test_saved_tensors_are_guarded",
            "tape/test_function.py::test_saved_tensors_pass_the_hooks",
            "optim/test_optimizers.py::test_a_step_is_noticed_by_the_tape",
            "nn/test_backward_hooks.py::test_a_parameter_as_output",
            "nn/test_parametrize.py::test_lazy_layers",
            "transforms/test_func.py::test_jacobian_chooses_the_cheaper_mode",
            "transforms/test_gradcheck.py::test_undefined_gradients_mishandled_are_named",
        },
    ),
    (
        "body", "it looks at what the framework knows of tensors and levels, which is another thing while one is captured",
        {
            "transforms/test_func.py::test_aux_is_handed_on_without_history_or_level",
            "transforms/test_func_connections.py::test_errors_leave_nothing_behind",
            "transforms/test_inplace_transforms.py::test_tangents_go_into_a_plain_tensor_which_stays_plain",
            "transforms/test_inplace_transforms.py::test_values_of_examples_do_not_go_into_a_shared_tensor",
        },
    ),
    (
        "body", "a scheduler's step is made when the program has run, and the test looks at rates at once",
        {"optim/test_schedules.py"},
    ),
    (
        "body", "a hook of an optimiser refuses an early step, and a program refuses the hook",
        {"optim/test_accumulation.py::test_a_step_within_the_block_is_an_error_and_leaves_what_was_there"},
    ),
    (
        "body", "it prints a tensor, or asks where it lies, while the function is captured",
        {"tape/test_backward.py::test_reading_a_value_is_silent_and_converting_it_warns"},
    ),
    (
        "body calls functions", "a zero that is one for any values stops NaN in plain calls alone, as in no other framework",
        {"tape/test_backward.py::test_a_part_that_is_not_looked_at_cannot_poison_the_others"},
    ),
    (
        "body", "the program refuses to be captured before what the test expects is refused",
        {"operators/test_errors.py::test_factories_and_settings_refuse_nonsense_by_name[9]"},
    ),
    (
        "body", "a kernel calls a function of the user's when the program runs, and the test looks at what it did at once",
        {
            "operators/test_linalg_factors.py::test_a_preconditioner_saves_steps",
            "operators/test_linalg_factors.py::test_a_tracker_can_end_the_iteration",
        },
    ),
    (
        "body calls functions", "it holds plain calls to declarations; compiled ones: tests/testing/test_opcheck_compiled.py",
        {"operators/test_every_operator.py"},
    ),
    (
        "body calls functions", "it has no tensors: it reads settings, or starts processes that do",
        {"core/test_environment.py", "core/test_native.py"},
    ),
    (
        "body calls functions", "it changes how many devices there are, which nothing does in a program",
        {
            "core/test_devices.py::test_a_pickle_wants_its_device",
            "core/test_devices.py::test_tensors_made_before_go_with_any_device",
        },
    ),
    (
        "body", "it asks whether arrays of NumPy lie in one memory while the function is captured, and nothing lies anywhere",
        {
            "operators/test_movement.py::test_views_show_the_same_elements",
            "operators/test_movement.py::test_a_write_through_a_view_reaches_the_gradient_of_the_base",
            "operators/test_create.py::test_dlpack_shares_memory",
        },
    ),
]  # fmt: skip
