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
    r"second derivatives of while_loop\(\)": "how often the way back is walked is known only when the program runs",
    r"the gradient of a branch does more than to compute": "the same, of the branch that it takes",
    r"it changes a list or dictionary that it is given": "Python would act once",
    r"it writes into memory that another of its tensors shares": "what one writes the other would read too late",
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
            "transforms/test_control_scan.py::test_checkpointed_scan_keeps_the_square_root",
            "transforms/test_func_connections.py::test_threads_have_transforms_of_their_own",
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
            "transforms/test_batched_errors.py::test_a_value_that_one_of_the_examples_must_not_have",
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
            "transforms/test_checkpoint_meets.py::test_a_context_that_swallows_the_functions_error_is_refused",
            "transforms/test_checkpoint_meets.py::test_a_leaf_changed_since_is_refused_even_if_backward_does_not_need_it",
            "transforms/test_checkpoint_meets.py::test_an_argument_changed_since_is_refused_and_both_lines_named",
            "transforms/test_checkpoint_meets.py::test_bad_options_are_refused",
            "transforms/test_checkpoint_meets.py::test_contexts_of_the_users_are_entered_for_each_run",
            "transforms/test_checkpoint_meets.py::test_leaves_that_the_function_itself_writes_are_its_own_affair",
            "transforms/test_checkpoint_meets.py::test_saved_tensor_hooks_outside_see_the_arguments_alone",
            "transforms/test_checkpoint_meets.py::test_what_is_overwritten_inside_the_function_after_it_was_saved_is_refused",
            "transforms/test_checkpoint_meets.py::test_where_hooks_are_refused_it_is_too",
            "transforms/test_checkpoint_report.py",
            "transforms/test_checkpoint_selective.py::test_a_policy_is_told_the_operator_its_arguments_and_its_result",
            "transforms/test_checkpoint_selective.py::test_a_policy_must_choose",
            "transforms/test_checkpoint_selective.py::test_another_operator_in_the_recomputation_is_named",
            "transforms/test_checkpoint_selective.py::test_contexts_serve_one_call",
            "transforms/test_checkpoint_selective.py::test_every_choice_of_a_policy",
            "transforms/test_checkpoint_selective.py::test_gradients_are_the_same_whatever_is_kept[in place-everything]",
            "transforms/test_checkpoint_selective.py::test_what_is_kept_does_not_run_again",
            "transforms/test_checkpoint_selective.py::test_what_is_kept_is_held_and_the_rest_is_not",
        },
    ),
    (
        "body", "checkpoint does nothing in a program, and the test looks at what it computes again, keeps or refuses",
        {
            "transforms/test_checkpoint.py::test_a_backward_inside_the_function_computes_what_there_is_so_far",
            "transforms/test_checkpoint.py::test_a_chain_is_cut_into_segments",
            "transforms/test_checkpoint.py::test_a_function_can_tell_that_it_is_computed_again",
            "transforms/test_checkpoint.py::test_an_error_in_the_recomputation_names_the_function_and_leaves_no_trace",
            "transforms/test_checkpoint.py::test_it_is_computed_again_once_per_backward",
            "transforms/test_checkpoint.py::test_it_is_left_as_soon_as_everything_wanted_is_computed",
            "transforms/test_checkpoint.py::test_nested_checkpoints_are_each_computed_again_once",
            "transforms/test_checkpoint.py::test_parts_of_the_graph_may_be_walked_on_their_own",
            "transforms/test_control_scan.py::test_steps_run_once_and_once_more_in_a_checkpointed_backward",
        },
    ),
    (
        "calls", "checkpoint does nothing in a program, which keeps what it needs, in files too, and draws nothing again",
        {
            "transforms/test_checkpoint_meets.py::test_its_arguments_may_go_to_files",
            "transforms/test_checkpoint_random.py::test_random_numbers_may_be_left_alone",
        },
    ),
    (
        "body", "threads of its own walk the graph, and a program is captured on one",
        {
            "transforms/test_checkpoint.py::test_backward_may_run_in_another_thread",
            "transforms/test_checkpoint_selective.py::test_threads_may_walk_one_graph",
        },
    ),
    (
        "calls", "a gradient does not need what is looked up or compared, so that is not computed, and refuses no index itself",
        {
            f"transforms/test_batched_errors.py::test_indices_out_of_bounds[{name}-mask{first + k}]"
            for name, first in (("embedding", 29), ("embedding_bag", 32), ("one_hot", 35)) for k in range(3)
        },
    ),
    (
        "body", "both branches are captured, whichever is taken, and the test looks at what Python does in them",
        {"transforms/test_control.py::test_cond_takes_one_branch"},
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
            "transforms/test_control_scan.py::test_slices_are_taken_once_and_outputs_stacked_once",
            "transforms/test_func.py::test_jacobian_chooses_the_cheaper_mode",
            "transforms/test_gradcheck.py::test_undefined_gradients_mishandled_are_named",
        },
    ),
    (
        "calls", "Python makes the noise, once while a program is captured, and it is the same in each call",
        {"transforms/test_gradcheck.py::test_nondeterminism_within_nondet_tol_passes"},
    ),
    (
        "body", "it looks at what the framework knows of tensors and levels, which is another thing while one is captured",
        {
            "transforms/test_func.py::test_aux_is_handed_on_without_history_or_level",
            "transforms/test_func_connections.py::test_errors_leave_nothing_behind",
            "transforms/test_func_connections.py::test_results_do_not_require_grad_without_reason",
            "transforms/test_function_transforms.py::test_a_level_left_late_takes_no_other_with_it",
            "transforms/test_function_transforms.py::test_duals_carry_tangents_and_lose_them",
            "transforms/test_function_transforms.py::test_forward_over_reverse_and_reverse_over_forward",
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
        {
            "operators/test_errors.py::test_factories_and_settings_refuse_nonsense_by_name[9]",
            "transforms/test_func.py::test_no_example_of_a_batch_has_values[data_ptr]",
        },
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
